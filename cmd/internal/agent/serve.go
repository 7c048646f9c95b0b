// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// hung is after what time without a new Sync the agent counts as stuck: several resyncs, each
// of which may wait for the lock of the pins and for the API server.
const hung = 5 * time.Minute

// Handler answers /healthz (the loop turns), /readyz (a pod can start, and all is as the cluster
// says; else what is missing, a line each) and /metrics.
func (a *Agent) Handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		r := a.Report()
		if age := a.Now().Sub(r.Began); !r.Began.IsZero() && age > hung {
			http.Error(w, fmt.Sprintf("nothing has been looked at for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := a.Report().Missing(); len(missing) > 0 {
			http.Error(w, strings.Join(missing, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// Serve answers at an address until ctx ends.
func Serve(ctx context.Context, listen string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for probes and metrics: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
