package sdk

import (
	"io"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/secret"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// redactor takes the secrets of the configuration out of texts that leave the
// plugin, whoever wrote them: an author's error that quotes a URL with its
// token, a library's log line (contract B7). The zero value knows of none.
type redactor struct {
	replacer atomic.Pointer[strings.Replacer]
}

// set takes the secrets.
func (r *redactor) set(secrets []string) {
	if replacer := secret.Replacer(secrets); replacer != nil {
		r.replacer.Store(replacer)
	}
}

func (r *redactor) text(s string) string {
	if replacer := r.replacer.Load(); replacer != nil {
		return replacer.Replace(s)
	}
	return s
}

// clean returns err, or one like it without secrets.
func (r *redactor) clean(err error) error {
	if err == nil || r.replacer.Load() == nil {
		return err
	}
	detail := wire.ToDetail(err) // which also stands an error value that panics
	if text := string(detail.GetMessage()); r.text(text) == text {
		return err
	}
	return wire.FromDetail(r.detail(detail))
}

// detail returns d without secrets. The caller's own path stays as it is, also
// where the message is just that of an *fs.PathError.
func (r *redactor) detail(d *berthv1.ErrorDetail) *berthv1.ErrorDetail {
	if r.replacer.Load() == nil || d == nil {
		return d
	}
	clean := proto.CloneOf(d)
	clean.Message = []byte(r.text(string(d.GetMessage())))
	if path := clean.GetPath(); path != nil {
		before := string(path.GetOp()) + " " + string(path.GetPath())
		if path.To != nil {
			before += " " + string(path.GetTo())
		}
		plain := before + ": " + string(path.GetMessage())
		path.Message = []byte(r.text(string(path.GetMessage())))
		if plain == string(d.GetMessage()) {
			clean.Message = []byte(before + ": " + string(path.GetMessage()))
		}
	}
	if clean.Timeout != nil {
		clean.Timeout.Survivors = []byte(r.text(string(d.GetTimeout().GetSurvivors())))
	}
	if clean.OutputLimit != nil {
		clean.OutputLimit.Survivors = []byte(r.text(string(d.GetOutputLimit().GetSurvivors())))
	}
	if clean.Plugin != nil {
		clean.Plugin.Reason = []byte(r.text(string(d.GetPlugin().GetReason())))
	}
	return clean
}

// writer is w without secrets. hclog writes one record a call.
func (r *redactor) writer(w io.Writer) io.Writer { return redactingWriter{r, w} }

type redactingWriter struct {
	redactor *redactor
	w        io.Writer
}

func (w redactingWriter) Write(p []byte) (int, error) {
	if w.redactor.replacer.Load() == nil {
		return w.w.Write(p)
	}
	if _, err := io.WriteString(w.w, w.redactor.text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
