//go:build unix

package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
)

const chunk = 64 << 10

func printBytes(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments, got %d", len(args))
	}
	for i, out := range []*os.File{os.Stdout, os.Stderr} {
		b, err := hex.DecodeString(args[i])
		if err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// printPattern fills both streams at the same time: a reader who empties one
// and then the other must not stop it.
func printPattern(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments, got %d", len(args))
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, out := range []*os.File{os.Stdout, os.Stderr} {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			return err
		}
		wg.Go(func() { errs[i] = writePattern(out, n) })
	}
	wg.Wait()
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

// dripChunk is what drip writes at once.
const dripChunk = 64

func drip(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want three arguments, got %d", len(args))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	pause, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	b := make([]byte, dripChunk)
	for i := range n {
		pattern.Fill(b, int64(i)*dripChunk)
		for _, out := range []*os.File{os.Stdout, os.Stderr} {
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
	return exit(args[2:])
}

func dump(args []string) error {
	if err := printPattern(args); err != nil {
		return err
	}
	time.Sleep(lingerTime)
	return nil
}

func writePattern(w io.Writer, n int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, pattern.Reader(n), make([]byte, chunk))
	return err
}

func printForEver([]string) error { return writePattern(os.Stdout, 1<<62) }

// flood notes the count after each chunk that the pipe took, and zero before the
// first one: whoever has seen output finds a number.
func flood(args []string) error {
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	b := make([]byte, 16<<10)
	for at := int64(0); ; at += int64(len(b)) {
		if _, err := f.WriteAt(fmt.Appendf(nil, "%020d\n", at), 0); err != nil {
			return err
		}
		pattern.Fill(b, at)
		if _, err := os.Stdout.Write(b); err != nil {
			return err
		}
	}
}

func cat([]string) error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}

func show(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(os.Stdout, f)
	return err
}

func sum(args []string) error {
	in := os.Stdin
	if len(args) > 0 {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	h := sha256.New()
	n, err := io.Copy(h, in)
	if err != nil {
		return err
	}
	fmt.Printf("%d %x\n", n, h.Sum(nil))
	return nil
}

func ask([]string) error {
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Print(line)
	return nil
}
