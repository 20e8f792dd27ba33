// Package display writes what workspaces and plugins say, which may hold any
// bytes, so that a terminal shows it and obeys none of it, and so that a
// program that reads the JSON form gets it exactly.
package display

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is a file's name, or any other single value, on one line of text. One
// that is not plain text, or that could be mistaken for a quoted one, is quoted
// as in Go, with \n, \x1b and \xff for what cannot be shown.
func Name(s string) string {
	if s == "" || s[0] == '"' || s[0] == ' ' || s[len(s)-1] == ' ' {
		return strconv.Quote(s)
	}
	for i, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError && isBad(s[i:]) {
			return strconv.Quote(s)
		}
	}
	return s
}

// Text is a message of one or more lines: newlines and tabs stay, whatever else
// cannot be shown is escaped. Lines after the first are indented, so that none
// can pass for a message of its own.
func Text(s string) string {
	return escape(s, "\n  ")
}

// Inexact returns the bytes of a name that JSON cannot carry, for a member
// beside it that holds them in base64, and nil for any other name.
func Inexact(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

// Writer escapes what is written through it to w, but for newlines and tabs.
// Each Write must hold whole characters, as loggers' do.
type Writer struct{ W io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, escape(string(p), "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escape(s, newline string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n':
			b.WriteString(newline)
		case r == '\t':
			b.WriteByte('\t')
		case r == utf8.RuneError && isBad(s[i:]):
			b.WriteString(`\x`)
			b.WriteByte(lowerHex[s[i]>>4])
			b.WriteByte(lowerHex[s[i]&15])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

const lowerHex = "0123456789abcdef"

// isBad tells a byte that is not UTF-8 from a U+FFFD that stands there.
func isBad(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return n == 1
}
