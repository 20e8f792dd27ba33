//go:build unix && !linux

package main

func startTime(int) string { return "" }

func zombie(int) bool { return false }
