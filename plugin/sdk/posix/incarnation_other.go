//go:build !linux

package posix

import (
	"fmt"
	"os"
	"reflect"
)

// incarnation is the folder's inode number where there is one. A folder made
// anew may get the same: only Linux tells a birth time in one way.
func incarnation(root *os.File) (string, error) {
	info, err := root.Stat()
	if err != nil {
		return "", err
	}
	if sys := reflect.Indirect(reflect.ValueOf(info.Sys())); sys.Kind() == reflect.Struct {
		if ino := sys.FieldByName("Ino"); ino.IsValid() {
			return fmt.Sprint(ino.Interface()), nil
		}
	}
	return "0", nil
}
