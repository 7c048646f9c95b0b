// SPDX-License-Identifier: Apache-2.0

// Package apitest is a small Kubernetes API server in memory, for tests of what must be right
// when many agents write at once: unlike client-go's fake it has resource versions, so that
// create, update and delete succeed, or fail with AlreadyExists and Conflict, as they do there.
// It checks no schema.
package apitest

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"
)

// object is one as JSON has it.
type object = map[string]any

// event is a change of an object: was is nil after a creation, is after a deletion.
type event struct {
	version  uint64
	resource string
	was, is  object
}

// Server answers for whatever kinds of objects it is asked for.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	version uint64
	objects map[string]map[string]object // by resource, by namespace/name
	history []event
	grown   chan struct{} // closed when history has grown
	down    chan struct{} // closed while nobody is answered
	asked   map[string]int
}

// New starts a server that ends with the test. It listens on loopback, or where it is told to, as in a
// namespace that the agents' nodes reach.
func New(t testing.TB, on ...net.Listener) *Server {
	s := &Server{objects: map[string]map[string]object{}, grown: make(chan struct{}), down: make(chan struct{}), asked: map[string]int{}}
	s.http = httptest.NewUnstartedServer(s)
	for _, l := range on {
		s.http.Listener.Close()
		s.http.Listener = l
	}
	s.http.Start()
	t.Cleanup(func() {
		s.SetDown(true)
		s.http.Close()
	})
	return s
}

// Config is how a client reaches the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.http.URL, QPS: 1000, Burst: 1000} }

// SetDown makes the server break all watches, and refuse all requests, until it is set up again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isDown := closed(s.down); down && !isDown {
		close(s.down)
	} else if !down && isDown {
		s.down = make(chan struct{})
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Asked gives how many requests there were, by verb and resource ("create ipblocks").
func (s *Server) Asked() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := map[string]int{}
	for what, n := range s.asked {
		asked[what] = n
	}
	return asked
}

// target is what a path names.
type target struct{ resource, namespace, name, subresource string }

func (t target) key() string { return t.namespace + "/" + t.name }

// parsePath reads /api/v1/... and /apis/GROUP/VERSION/...
func parsePath(path string) (t target) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2
	if parts[0] == "apis" {
		skip = 3
	}
	parts = parts[min(skip, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	for i, to := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	return t
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if closed(down) {
		s.refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
		return
	}
	t := parsePath(r.URL.Path)
	verb := verbs[r.Method]
	if t.name == "" && r.Method == http.MethodGet {
		verb = "list"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	s.mu.Lock()
	s.asked[strings.TrimSpace(verb+" "+t.resource+" "+t.subresource)]++
	s.mu.Unlock()
	switch verb {
	case "watch":
		s.watch(w, r, t, down)
	case "list":
		s.reply(w, http.StatusOK, s.list(t, r.URL.Query().Get("fieldSelector")))
	default:
		s.one(w, r, verb, t)
	}
}

var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete", http.MethodGet: "get"}

func (s *Server) list(t target, selector string) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []object{}
	for _, o := range s.objects[t.resource] {
		if matches(o, selector) {
			items = append(items, o)
		}
	}
	return object{"kind": kinds[t.resource] + "List", "apiVersion": versions[t.resource], "items": items,
		"metadata": object{"resourceVersion": strconv.FormatUint(s.version, 10)}}
}

// one answers what is asked of one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, verb string, t target) {
	var body object
	if r.ContentLength != 0 && r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if verb == "create" {
		t.name, _ = meta(body)["name"].(string)
	}
	was := s.objects[t.resource][t.key()]
	switch {
	case verb == "create" && was != nil:
		s.refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, t.key()+" already exists")
	case verb != "create" && was == nil:
		s.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, t.key()+" not found")
	case verb == "get":
		s.reply(w, http.StatusOK, was)
	case verb == "create":
		delete(body, "status")
		s.reply(w, http.StatusCreated, s.put(t, nil, body))
	case verb == "update" && stale(was, meta(body)), verb == "delete" && stale(was, preconditions(body)):
		s.refuse(w, http.StatusConflict, metav1.StatusReasonConflict, t.key()+" has been changed")
	case verb == "delete":
		s.put(t, was, nil)
		s.reply(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case verb == "patch":
		patched, err := patch(t.resource, was, body)
		if err != nil {
			s.refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
			return
		}
		s.reply(w, http.StatusOK, s.put(t, was, merged(was, patched, t.subresource)))
	default:
		s.reply(w, http.StatusOK, s.put(t, was, merged(was, body, t.subresource)))
	}
}

// merged is the object after an update: of the status alone, or of all but the status.
func merged(was, body object, subresource string) object {
	from, to := was, body
	if subresource == "status" {
		from, to = body, clone(was)
	}
	if status, ok := from["status"]; ok {
		to["status"] = status
	} else {
		delete(to, "status")
	}
	return to
}

// patch does a strategic merge, the one kind that agents use.
func patch(resource string, was, with object) (object, error) {
	return strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(was), with, patchable[resource])
}

// patchable tell what lists are merged by, as a Node's conditions by their type.
var patchable = map[string]any{"nodes": corev1.Node{}, "events": corev1.Event{}}
