// Package swap tests how a plugin is swapped for another one under load: whole
// hosts, real plugin processes, and binaries that are renamed into place. It runs on
// Linux.
package swap
