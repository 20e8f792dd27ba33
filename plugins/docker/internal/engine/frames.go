package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/docker/docker/pkg/stdcopy"
)

const (
	// frameHeader is the size of what precedes each piece of output: the stream's
	// number, three zeros, and the length in four bytes.
	frameHeader = 8
	lengthAt    = 4
	// frameBuffer is how much is read at once: some frames, of which the engine sends
	// those of a file in some 4 to 32 KiB.
	frameBuffer = 64 << 10
	// engineTextLimit is how much is kept of an error that the engine sends in
	// place of output.
	engineTextLimit = 4 << 10
)

// frames takes the outputs of an exec apart, in constant memory whatever lengths
// the other side claims.
type frames struct {
	r      *bufio.Reader
	stream stdcopy.StdType
	left   uint32 // of the current frame
}

// next returns a piece of output that is not empty, and its stream. The piece is
// valid until the next call, and is at most limit bytes. Between frames the end
// is io.EOF, within one io.ErrUnexpectedEOF.
func (f *frames) next(limit int) (stdcopy.StdType, []byte, error) {
	for f.left == 0 {
		header, err := f.r.Peek(frameHeader)
		if err != nil {
			if errors.Is(err, io.EOF) && len(header) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		f.stream = stdcopy.StdType(header[0])
		if f.stream > stdcopy.Systemerr {
			return 0, nil, fmt.Errorf("a frame of the unknown stream %d", header[0])
		}
		f.left = binary.BigEndian.Uint32(header[lengthAt:])
		if _, err := f.r.Discard(frameHeader); err != nil {
			return 0, nil, err
		}
	}
	if f.r.Buffered() == 0 {
		if _, err := f.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
	n := int(min(uint64(f.left), uint64(f.r.Buffered()), uint64(limit)))
	piece, err := f.r.Peek(n)
	if err != nil {
		return 0, nil, err
	}
	f.left -= uint32(n)
	_, err = f.r.Discard(n)
	return f.stream, piece, err
}

// engineError is the error that the engine sends in place of output, of which
// piece is the beginning.
func (f *frames) engineError(piece []byte) error {
	text := append([]byte(nil), piece[:min(len(piece), engineTextLimit)]...)
	for f.left > 0 && len(text) < engineTextLimit {
		_, more, err := f.next(engineTextLimit - len(text))
		if err != nil {
			break
		}
		text = append(text, more...)
	}
	return fmt.Errorf("the engine says %q", text)
}
