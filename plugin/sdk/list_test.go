package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestListFilters(t *testing.T) {
	infos := []Info{
		{ID: "a/b", Name: "n", Labels: map[string]string{"k": "v", "l": "w"}, Created: time.Now().Add(-time.Hour), State: "run\xffning", Details: map[string]string{"image": "x"}},
		{ID: "young", Labels: map[string]string{"k": "v"}, Created: time.Now()},
		{ID: "ageless", Labels: map[string]string{"k": "v"}},
		{ID: "other", Labels: map[string]string{"k": "w"}, Created: time.Now().Add(-time.Hour)},
	}
	provider := providing(newBare())
	var failure error
	provider.list = func(context.Context, workspace.ListOptions) iter.Seq2[Info, error] {
		return func(yield func(Info, error) bool) {
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if failure != nil {
				yield(Info{}, failure)
			}
		}
	}
	client := serveProvider(t, provider)
	list := func(req *berthv1.ListRequest) (ids []string, last *berthv1.ListResponse, err error) {
		stream, err := client.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return ids, last, nil
			}
			if err != nil {
				return ids, last, fromCall(err)
			}
			ids, last = append(ids, m.GetId()), m
		}
	}
	for _, test := range []struct {
		req  *berthv1.ListRequest
		want string
	}{
		{&berthv1.ListRequest{}, "[a%2Fb young ageless other]"},
		{&berthv1.ListRequest{Labels: map[string]string{"k": "v"}}, "[a%2Fb young ageless]"},
		{&berthv1.ListRequest{Labels: map[string]string{"k": "v", "l": "w"}}, "[a%2Fb]"},
		{&berthv1.ListRequest{Labels: map[string]string{"missing": ""}}, "[]"},
		{&berthv1.ListRequest{OlderThanNs: int64(time.Minute)}, "[a%2Fb other]"},
		{&berthv1.ListRequest{OlderThanNs: 1, Labels: map[string]string{"k": "w"}}, "[other]"},
	} {
		if ids, _, err := list(test.req); err != nil || fmt.Sprint(ids) != test.want {
			t.Errorf("%v: %v, error %v, want %s", test.req, ids, err, test.want)
		}
	}
	_, info, _ := list(&berthv1.ListRequest{Labels: map[string]string{"l": "w"}})
	if info.GetName() != "n" || info.GetState() != "run\uFFFDning" || info.GetDetails()["image"] != "x" || info.GetCreated().GetSeconds() == 0 {
		t.Errorf("listed %v", info)
	}
	_, _, err := list(&berthv1.ListRequest{OlderThanNs: -1})
	mustBe(t, err, workspace.ErrInvalid)
	failure = workspace.ErrTransient
	ids, _, err := list(&berthv1.ListRequest{})
	mustBe(t, err, workspace.ErrTransient)
	if len(ids) != 4 {
		t.Errorf("listed %v before the error", ids)
	}
}

// unlisted hides List.
type unlisted struct{ Provider }

func TestListIsAFeature(t *testing.T) {
	stream, err := serveProvider(t, unlisted{providing(newBare())}).List(t.Context(), &berthv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}

func TestCloseGivesEverythingBack(t *testing.T) {
	process := newFakeProcess()
	ws := &struct {
		*runner
		*atomic.Int64
	}{starting(process), &atomic.Int64{}}
	provider := providing(ws)
	var closed atomic.Bool
	provider.closed = func() error { closed.Store(true); return nil }
	s := newServer(pluginOf(provider).definition(), hclogNull(), &redactor{})
	if _, err := s.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	client := connectServer(t, s)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	s.close()
	if _, err := call.wait(); err == nil || !strings.Contains(err.Error(), errClosing.Error()) {
		t.Errorf("the run ended with %v", err)
	}
	if !closed.Load() {
		t.Error("the provider is open")
	}
	if _, err := startRun(t, t.Context(), client, &berthv1.RunStart{}).stream.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a run after that: %v", err)
	}
}
