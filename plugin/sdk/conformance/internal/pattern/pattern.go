// Package pattern is output whose every byte is known by its place, so that one
// that is missing, doubled or moved shows.
package pattern

import "io"

// At returns the byte at offset i.
func At(i int64) byte {
	x := uint64(i) * 0x9E3779B97F4A7C15
	return byte(x >> 56)
}

// Fill writes the bytes from offset on into b.
func Fill(b []byte, offset int64) {
	for i := range b {
		b[i] = At(offset + int64(i))
	}
}

// Bytes returns the first n bytes.
func Bytes(n int) []byte {
	b := make([]byte, n)
	Fill(b, 0)
	return b
}

// Reader returns the first n bytes as a stream.
func Reader(n int64) io.Reader { return &reader{end: n} }

type reader struct{ at, end int64 }

func (r *reader) Read(b []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), r.end-r.at))
	Fill(b[:n], r.at)
	r.at += int64(n)
	return n, nil
}
