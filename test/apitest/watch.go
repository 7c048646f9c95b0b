// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// watch sends what changes, after all that is there if the client has no version, or asks for
// it with the bookmark at its end that client-go's lists by watch wait for.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, down <-chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	selector := q.Get("fieldSelector")
	from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	send := func(kind string, o object) { _ = json.NewEncoder(w).Encode(object{"type": kind, "object": o}) }

	s.mu.Lock()
	initial := q.Get("sendInitialEvents") == "true"
	if initial || from == 0 {
		for _, o := range s.objects[t.resource] {
			if matches(o, selector) {
				send("ADDED", o)
			}
		}
		from = s.version
	}
	s.mu.Unlock()
	if initial {
		send("BOOKMARK", object{"kind": kinds[t.resource], "apiVersion": versions[t.resource], "metadata": object{
			"resourceVersion": strconv.FormatUint(from, 10), "annotations": object{"k8s.io/initial-events-end": "true"}}})
	}
	for {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		history, grown := s.history, s.grown
		s.mu.Unlock()
		for _, e := range history[min(int(from), len(history)):] { // each event has a version of its own
			if e.resource != t.resource {
				continue
			}
			was, is := e.was != nil && matches(e.was, selector), e.is != nil && matches(e.is, selector)
			switch {
			case is && !was:
				send("ADDED", e.is)
			case is:
				send("MODIFIED", e.is)
			case was:
				send("DELETED", e.was)
			}
		}
		from = uint64(len(history))
		w.(http.Flusher).Flush()
		select {
		case <-grown:
		case <-r.Context().Done():
			return
		case <-down:
			panic(http.ErrAbortHandler)
		}
	}
}

// Clients decode a watch's objects by these.
var kinds = map[string]string{"nodes": "Node", "pods": "Pod", "events": "Event", "namespaces": "Namespace", "ippools": "IPPool", "ipblocks": "IPBlock"}

var versions = map[string]string{"nodes": "v1", "pods": "v1", "events": "v1", "namespaces": "v1", "ippools": "culvert.dev/v1alpha1", "ipblocks": "culvert.dev/v1alpha1"}
