// Package chaos keeps several providers under load while their plugins are killed,
// frozen, swapped and made to flood their logs, and compares what is left with what
// was acknowledged. It runs on Linux.
package chaos
