//go:build !linux

package main

import "os/exec"

func freezeSelf() { select {} }

func ignoreParentDeath() {}

func detached(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }
