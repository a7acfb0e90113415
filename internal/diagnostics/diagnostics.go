// Package diagnostics serves what operators of the program want to know of it: metrics, Go's profiles and the log
// level, to clients that the API server allows that.
package diagnostics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Level is the log level. It refuses values out of range.
type Level interface{ Set(level int) error }

// Metrics serves metrics at /metrics and nothing else, to everybody.
func Metrics(metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mux
}

// Handler serves metrics, profiles at /debug/pprof/ and, unless it is nil, the log level at /debug/flags/v, for whom
// access allows the path.
func Handler(metrics prometheus.Gatherer, level Level, access *Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", Metrics(metrics))
	if level != nil {
		mux.Handle("/debug/flags/v", setLevel(level))
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return access.guard(mux)
}

// setLevel takes the log level as the body of a PUT, as Kubernetes' own programs do.
func setLevel(level Level) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			w.Header().Set("Allow", http.MethodPut)
			http.Error(w, "use PUT with the level as body", http.StatusMethodNotAllowed)
			return
		}
		text, err := io.ReadAll(io.LimitReader(r.Body, 16))
		if err != nil {
			http.Error(w, "reading the level", http.StatusBadRequest)
			return
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			http.Error(w, "the level is not a number", http.StatusBadRequest)
			return
		}
		if err := level.Set(number); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, "successfully set log level to %d\n", number)
	})
}
