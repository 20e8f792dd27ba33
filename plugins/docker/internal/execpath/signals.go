package execpath

import (
	"strconv"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// signals are Linux's numbers on amd64 and arm64, wherever this side runs.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18,
	"STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27,
	"WINCH": 28, "IO": 29, "POLL": 29, "PWR": 30, "SYS": 31, "RTMIN": 34, "RTMAX": 64,
}

func signalNumber(sig workspace.Signal) (int, bool) {
	name, offset := string(sig), 0
	if at := strings.IndexAny(name, "+-"); at > 0 {
		var err error
		if offset, err = strconv.Atoi(name[at:]); err != nil {
			return 0, false
		}
		name = name[:at]
		if name != "RTMIN" && name != "RTMAX" {
			return 0, false
		}
	}
	number, ok := signals[name]
	number += offset
	if offset != 0 && (number < signals["RTMIN"] || number > signals["RTMAX"]) {
		return 0, false
	}
	return number, ok
}
