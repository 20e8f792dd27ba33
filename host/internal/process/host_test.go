package process

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/test/faults"
)

// hostEnv makes the test binary a host instead, with the folder of plugins.
const hostEnv = "BERTH_TEST_HOST"

// hostMain is a host in a process of its own: it starts plugins, tells their
// pids, and then what it reads on its own stdin.
func hostMain(dir string) int {
	plugins := faults.Plugins{Dir: dir}
	for _, name := range []string{faults.Good, faults.Lifeline} {
		p, err := Start(context.Background(), Config{Provider: "test", Path: plugins.Path(name)})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		resp, err := berthv1.NewProviderClient(p.Conn()).Stat(context.Background(), &berthv1.StatRequest{Path: []byte("/stdin")})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("%d %q\n", p.PID(), resp.GetInfo().GetTarget())
	}
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		return 1
	}
	select {}
}
