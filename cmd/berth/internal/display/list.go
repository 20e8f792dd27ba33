package display

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Format is how a listing is written.
type Format string

// Formats of listings.
const (
	Table Format = "table" // for people: columns under a heading
	JSON  Format = "json"  // for programs: an array of objects, one on a line
	Names Format = "name"  // for scripts: the first thing to know of each, one on a line
)

// formats are the words that the flag takes.
var formats = []string{string(Table), string(JSON), string(Names)}

// Set makes a Format, with String and Type, the value of a command line's flag.
func (f *Format) Set(s string) error {
	for _, known := range formats {
		if s == known {
			*f = Format(s)
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(formats, ", "))
}

// String returns the word that Set takes.
func (f *Format) String() string { return string(*f) }

// Type names the flag's argument in help texts.
func (f *Format) Type() string { return "format" }

// Row is one thing in a listing.
type Row struct {
	// Name is what [Names] writes. It is escaped by [Name] where necessary.
	Name string
	// Cells are what [Table] writes, as they are to be shown.
	Cells []string
	// Object is what [JSON] writes.
	Object any
}

// List writes rows to w in format f. The heading is written by [Table] alone,
// and by that also where there are no rows.
func List(w io.Writer, f Format, heading []string, rows []Row) error {
	out := bufio.NewWriter(w)
	var err error
	switch f {
	case JSON:
		err = listJSON(out, rows)
	case Names:
		for _, row := range rows {
			fmt.Fprintln(out, Name(row.Name))
		}
	default:
		err = listTable(out, heading, rows)
	}
	if err != nil {
		return err
	}
	return out.Flush() // reports what earlier writes to out ran into, too
}

func listJSON(w io.Writer, rows []Row) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	between := "["
	for _, row := range rows {
		if _, err := io.WriteString(w, between+"\n"); err != nil {
			return err
		}
		between = ","
		if err := encoder.Encode(row.Object); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		_, err := io.WriteString(w, "[]\n")
		return err
	}
	_, err := io.WriteString(w, "]\n")
	return err
}

// Object writes one JSON object, indented.
func Object(w io.Writer, object any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(object)
}

func listTable(w io.Writer, heading []string, rows []Row) error {
	const gap = 2
	table := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	line := func(cells []string) {
		// The last column is not followed by a tab, so that nothing pads it.
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	line(heading)
	for _, row := range rows {
		line(row.Cells)
	}
	return table.Flush()
}
