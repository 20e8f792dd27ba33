package conformance

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// Status is what became of a check.
type Status string

// What may become of a check.
const (
	// Checked is one that passed.
	Checked Status = "checked"
	// Failed is one that did not.
	Failed Status = "failed"
	// Absent is one of a feature that the provider does not have.
	Absent Status = "absent"
	// NotChecked is one that the test's options do not allow.
	NotChecked Status = "not checked"
	// Deviates is one of a rule that the provider declares it does not keep.
	Deviates Status = "deviates"
)

// Line is one check in a report.
type Line struct {
	Check  string
	Status Status
	// Reason names the feature that is absent, what was needed to check, or why
	// the provider deviates.
	Reason string
}

// Rule is the rule that the check belongs to, such as "C5".
func (l Line) Rule() string { return ruleOf(l.Check) }

// Report is what a run of the suite found.
type Report struct {
	Provider string
	Features workspace.Features
	Lines    []Line
}

func (r *Report) add(l Line) { r.Lines = append(r.Lines, l) }

// Count tells how many checks have a status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, l := range r.Lines {
		if l.Status == s {
			n++
		}
	}
	return n
}

// String is a table for a terminal.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %s: %s\nfeatures: %s\n", r.Provider, r.summary(), r.features())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range r.Lines {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", l.Check, l.Status, strings.ReplaceAll(l.Reason, "\n", " "))
	}
	_ = w.Flush() // to memory
	return b.String()
}

// Markdown is a table for a provider's documentation.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Features: %s. Contract: %s.\n\n| Check | Result | Why |\n|---|---|---|\n", r.features(), r.summary())
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.Check, l.Status, cell.Replace(l.Reason))
	}
	return b.String()
}

func (r *Report) features() string { return strings.Join(wire.FromFeatures(r.Features), ", ") }

func (r *Report) summary() string {
	var parts []string
	for _, s := range []Status{Checked, Failed, Absent, NotChecked, Deviates} {
		if n := r.Count(s); n > 0 || s == Checked {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}
