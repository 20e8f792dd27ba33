package gateway

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"
)

// policyKeysOfTheWire are those that sandboxd's clients may read.
var policyKeysOfTheWire = []string{
	"buildkit", "container_ttl", "cpu_shares", "cpus", "default_runtime", "evict_idle_after", "execute_timeout", "idle_timeout", "max_open_sessions",
	"max_read_bytes", "max_sessions", "max_sessions_per_tenant", "mem_limit", "memswap_limit", "native_files", "native_realpath", "native_writes",
	"network_mode", "oci_runtime", "persist_containers", "pids_limit", "prewarm", "runtimes", "sandbox_uid", "tmpfs_size", "work_dir", "workspace_ttl",
}

func TestPolicyTellsWhatIsInForce(t *testing.T) {
	five := 5
	tg := newTestGateway(t, func(c *Config) {
		c.Policy = Policy{MaxSessions: &five, ExecuteTimeout: time.Minute, IdleTimeout: 90 * time.Second, WorkspaceTTL: 1500 * time.Millisecond}
		c.Runtimes["python"] = Runtime{Provider: "folder", Config: map[string]any{"image": "python:3", "mem_limit": "1g"}}
	})
	got := tg.call(serviceToken, http.MethodGet, "/policy", nil).object(http.StatusOK)
	if keys := slices.Sorted(maps.Keys(got)); !reflect.DeepEqual(keys, policyKeysOfTheWire) {
		t.Errorf("%v", keys)
	}
	for key, want := range map[string]any{
		"default_runtime": "folder", "max_sessions": 5., "max_open_sessions": nil, "execute_timeout": 60., "idle_timeout": 90., "max_read_bytes": 8388608.,
		"evict_idle_after": 1800., "workspace_ttl": 2., "container_ttl": nil, "native_files": true, "native_writes": true, "native_realpath": true,
		"cpus": nil, "sandbox_uid": nil, "work_dir": "",
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	runtimes := got["runtimes"].([]any)
	want := map[string]any{
		"alias": "python", "image": "python:3", "description": "", "builds": false, "mem_limit": "1g", "memswap_limit": nil, "cpus": nil,
		"cpu_shares": nil, "pids_limit": nil, "network_mode": nil, "oci_runtime": nil, "provider": "folder",
	}
	if len(runtimes) != 3 || !reflect.DeepEqual(runtimes[2], want) {
		t.Errorf("%v", runtimes)
	}
}

func TestPolicyIsChanged(t *testing.T) {
	tg := newTestGateway(t)
	put := func(body any) *answered { return tg.call(serviceToken, http.MethodPut, "/policy", body) }
	before := tg.call(serviceToken, http.MethodGet, "/policy", nil).object(http.StatusOK)
	got := put(`{"max_sessions":3,"evict_idle_after":60,"idle_timeout":120,"execute_timeout":7,"max_read_bytes":1000,"default_runtime":"other","workspace_ttl":5,"container_ttl":6,"max_open_sessions":9,"max_sessions_per_tenant":0}`).object(http.StatusOK)
	for key, want := range map[string]any{
		"max_sessions": 3., "evict_idle_after": 60., "idle_timeout": 120., "execute_timeout": 7., "max_read_bytes": 1000., "default_runtime": "other",
		"workspace_ttl": 5., "container_ttl": 6., "max_open_sessions": 9., "max_sessions_per_tenant": 0.,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
		before[key] = want
	}
	if !reflect.DeepEqual(got, before) {
		t.Errorf("%v\nwant %v", got, before)
	}
	if now := tg.call(serviceToken, http.MethodGet, "/policy", nil).object(http.StatusOK); !reflect.DeepEqual(now, before) {
		t.Errorf("%v\nwant %v", now, before)
	}
	tg.call(serviceToken, http.MethodPost, "/sessions", `{"tenant":"t"}`).object(http.StatusTooManyRequests)

	// What is left out stays, null clears where that can be, and zero is never.
	got = put(`{"max_sessions":null,"evict_idle_after":null,"idle_timeout":0,"execute_timeout":null,"max_sessions_per_tenant":null}`).object(http.StatusOK)
	for key, want := range map[string]any{
		"max_sessions": nil, "evict_idle_after": nil, "idle_timeout": 0., "execute_timeout": 7., "max_sessions_per_tenant": nil, "max_open_sessions": 9.,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	tg.call(serviceToken, http.MethodPost, "/sessions", `{"tenant":"t"}`).is(http.StatusOK)
}

func TestPolicyIsNotChangedByWhatIsNotForClients(t *testing.T) {
	tg := newTestGateway(t)
	put := func(body any) *answered { return tg.call(serviceToken, http.MethodPut, "/policy", body) }
	before := tg.call(serviceToken, http.MethodGet, "/policy", nil).object(http.StatusOK)
	for _, key := range []string{"network_mode", "sandbox_uid", "work_dir", "oci_runtime", "persist_containers", "mem_limit", "runtimes", "nosuch", "token"} {
		put(map[string]any{key: "host"}).invalid("extra_forbidden", "body", key)
	}
	put(`{"max_sessions":-1}`).invalid("greater_than_equal", "body", "max_sessions")
	put(`{"max_sessions":1.5}`).invalid("int_type", "body", "max_sessions")
	put(`{"max_sessions":"3"}`).invalid("int_type", "body", "max_sessions")
	put(`{"max_sessions":1e300}`).invalid("less_than_equal", "body", "max_sessions")
	put(`{"execute_timeout":0}`).invalid("greater_than_equal", "body", "execute_timeout")
	put(`{"idle_timeout":99999999999}`).invalid("less_than_equal", "body", "idle_timeout")
	put(`{"default_runtime":7}`).invalid("string_type", "body", "default_runtime")
	if a := put(`{"default_runtime":"ruby"}`); a.status != http.StatusBadRequest && a.status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.status, a.body)
	}
	if now := tg.call(serviceToken, http.MethodGet, "/policy", nil).object(http.StatusOK); !reflect.DeepEqual(now, before) {
		t.Errorf("%v\nwant %v", now, before)
	}
}
