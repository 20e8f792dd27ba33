package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

// scrapeTimeout bounds the question how many sessions there are, which a database
// may be slow to answer.
const scrapeTimeout = 5 * time.Second

// latencies are the buckets, in seconds, of everything from a stat that takes a
// millisecond to a command that takes minutes.
var latencies = []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// metrics are what an operator watches. Nothing in them names a session, a tenant
// or a path.
type metrics struct {
	registry *prometheus.Registry
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec

	runsActive  prometheus.Gauge
	runs        *prometheus.CounterVec
	runDuration prometheus.Histogram
}

func newMetrics(registry *prometheus.Registry, sessions *session.Manager) (*metrics, error) {
	m := &metrics{
		registry: registry,
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_gateway_requests_in_flight", Help: "Requests that are being answered.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_gateway_requests_total", Help: "Requests that were answered, by operation and status.",
		}, []string{"operation", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_gateway_request_duration_seconds", Help: "How long requests took, by operation.", Buckets: latencies,
		}, []string{"operation"}),
		runsActive: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_gateway_runs_active", Help: "Commands that run through this gateway.",
		}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_gateway_runs_total", Help: "Commands that ended, by outcome: exited, timed_out, output_limited, failed.",
		}, []string{"outcome"}),
		runDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_gateway_run_duration_seconds", Help: "How long commands took.", Buckets: latencies,
		}),
	}
	for _, c := range []prometheus.Collector{
		m.inFlight, m.requests, m.duration, m.runsActive, m.runs, m.runDuration,
		newSessionCollector(sessions), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("gateway: registering its metrics: %w", err)
		}
	}
	return m, nil
}

// answered counts a request. An empty operation is none that there is, and a zero
// status a client that left before it was answered.
func (m *metrics) answered(operation string, status int, took time.Duration) {
	if operation == "" {
		operation = "none"
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
}

// The outcomes of runs.
const (
	runExited        = "exited"
	runTimedOut      = "timed_out"
	runOutputLimited = "output_limited"
	runFailed        = "failed"
)

// outcome is what a run's end is counted as.
func (o runOutcome) outcome() string {
	switch {
	case o.timedOut:
		return runTimedOut
	case o.limited:
		return runOutputLimited
	case o.exitCode != nil:
		return runExited
	}
	return runFailed
}

// runBegan counts a command that begins; what it returns counts its end.
func (m *metrics) runBegan() (ended func(outcome string)) {
	began := time.Now()
	m.runsActive.Inc()
	return func(outcome string) {
		m.runsActive.Dec()
		m.runs.WithLabelValues(outcome).Inc()
		m.runDuration.Observe(time.Since(began).Seconds())
	}
}

// handler serves what was counted, for Prometheus.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// sessionCollector asks how many sessions there are when somebody wants to know.
type sessionCollector struct {
	sessions *session.Manager
	byState  *prometheus.Desc
}

func newSessionCollector(sessions *session.Manager) *sessionCollector {
	return &sessionCollector{sessions, prometheus.NewDesc("berth_gateway_sessions",
		"Open sessions of all gateways of the store, by state.", []string{"state"}, nil)}
}

// Describe tells what Collect gives.
func (c *sessionCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.byState }

// Collect counts the sessions. What cannot be counted is left out.
func (c *sessionCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	counts, err := c.sessions.Count(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.byState, err)
		return
	}
	for state, n := range map[session.State]int{session.Running: counts.Resident, session.Hibernated: counts.Open - counts.Resident} {
		ch <- prometheus.MustNewConstMetric(c.byState, prometheus.GaugeValue, float64(n), string(state))
	}
}
