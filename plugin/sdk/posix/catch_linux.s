//go:build amd64 || arm64

#include "textflag.h"

// func caught()
TEXT ·caught(SB),NOSPLIT|NOFRAME,$0-0
	RET

GLOBL ·caughtAddr(SB),RODATA,$8
DATA ·caughtAddr(SB)/8,$·caught(SB)
