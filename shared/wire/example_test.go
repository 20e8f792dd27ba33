package wire_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire"
)

// A plugin answers with ToStatus, the host reads with FromStatus.
func ExampleToStatus() {
	sent := wire.ToStatus(&fs.PathError{Op: "open", Path: "notes\xff.txt", Err: syscall.ENOENT})
	fmt.Println(status.Code(sent), status.Convert(sent).Message())

	got := wire.FromStatus(sent)
	var pathErr *fs.PathError
	fmt.Println(errors.Is(got, fs.ErrNotExist), errors.As(got, &pathErr))
	fmt.Printf("%q\n", pathErr.Path)
	// Output:
	// NotFound open notes?.txt: no such file or directory
	// true true
	// "notes\xff.txt"
}
