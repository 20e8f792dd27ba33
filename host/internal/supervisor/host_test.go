package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/test/faults"
)

// hostEnv makes the test binary a host instead, with the folder of plugins.
const hostEnv = "BERTH_TEST_HOST"

// hostMain is a host in a process of its own. For each line on stdin it tells
// the pid of its plugin.
func hostMain(dir string) int {
	s := New(Config{
		Provider:         "test",
		Find:             func() (catalog.Binary, error) { return catalog.Find(faults.Good, []string{dir}) },
		LivenessInterval: hostLiveness,
	})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		inst, err := s.Acquire(context.Background())
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_, err = do(context.Background(), inst, "ping")
		fmt.Println(inst.PID(), s.Status().State, err)
		inst.Release()
	}
	if err := s.Shutdown(context.Background()); err != nil {
		return 1
	}
	return 0
}

const hostLiveness = 500 * time.Millisecond
