package proc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/client"
)

// InContainer lists the processes of a container whose command line holds all of
// words, as this machine numbers them: the engine has to be on it.
func InContainer(ctx context.Context, engine *client.Client, container string, words ...string) ([]int, error) {
	top, err := engine.ContainerTop(ctx, container, nil)
	if err != nil {
		return nil, err
	}
	id, command := slices.Index(top.Titles, "PID"), slices.Index(top.Titles, "CMD")
	if id < 0 || command < 0 {
		return nil, fmt.Errorf("the engine lists processes without ids or commands: %q", top.Titles)
	}
	var pids []int
	for _, process := range top.Processes {
		if slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(process[command], word) }) {
			continue
		}
		pid, err := strconv.Atoi(process[id])
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
