// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func meta(o object) object {
	m, _ := o["metadata"].(object)
	return m
}

func preconditions(body object) object {
	p, _ := body["preconditions"].(object)
	return p
}

// stale says whether what is asked for is another version of the object, or another object.
func stale(was, asked object) bool {
	for _, key := range []string{"uid", "resourceVersion"} {
		if v, ok := asked[key].(string); ok && v != "" && v != meta(was)[key] {
			return true
		}
	}
	return false
}

// clone copies what put changes.
func clone(o object) object {
	c := maps.Clone(o)
	c["metadata"] = maps.Clone(meta(o))
	return c
}

// put stores, or with is nil deletes, an object, and tells those who watch.
func (s *Server) put(t target, was, is object) object {
	s.version++
	version := strconv.FormatUint(s.version, 10)
	all := s.objects[t.resource]
	if all == nil {
		all = map[string]object{}
		s.objects[t.resource] = all
	}
	told := event{version: s.version, resource: t.resource, was: was, is: is}
	if is == nil {
		delete(all, t.key())
		told.was = clone(was)
		meta(told.was)["resourceVersion"] = version
	} else {
		m := meta(is)
		m["resourceVersion"] = version
		if was == nil {
			m["uid"], m["creationTimestamp"] = "uid-"+version, time.Now().UTC().Format(time.RFC3339)
			m["name"] = t.name
			if t.namespace != "" {
				m["namespace"] = t.namespace
			}
		} else {
			m["uid"], m["creationTimestamp"] = meta(was)["uid"], meta(was)["creationTimestamp"]
		}
		is["kind"], is["apiVersion"] = kinds[t.resource], versions[t.resource]
		all[t.key()] = is
	}
	s.history = append(s.history, told)
	close(s.grown)
	s.grown = make(chan struct{})
	return is
}

// Apply stores an object whatever was there, with its status: what a controller or an
// administrator would have done.
func (s *Server) Apply(t testing.TB, resource string, o metav1.Object) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var is object
	if err := json.Unmarshal(text, &is); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := target{resource: resource, namespace: o.GetNamespace(), name: o.GetName()}
	s.put(at, s.objects[resource][at.key()], is)
}

// Remove deletes an object, if it is there.
func (s *Server) Remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := target{resource: resource, namespace: namespace, name: name}
	if was := s.objects[resource][at.key()]; was != nil {
		s.put(at, was, nil)
	}
}

// Each gives every change of a resource so far, as JSON: nil where the object was not there.
func (s *Server) Each(resource string, f func(was, is []byte)) {
	s.mu.Lock()
	history := s.history
	s.mu.Unlock()
	text := func(o object) (b []byte) {
		if o != nil {
			b, _ = json.Marshal(o)
		}
		return b
	}
	for _, e := range history {
		if e.resource == resource {
			f(text(e.was), text(e.is))
		}
	}
}

// matches does the one kind of selector that agents use: FIELD=VALUE, a path with dots.
func matches(o object, selector string) bool {
	path, value, ok := strings.Cut(selector, "=")
	if !ok {
		return true
	}
	var at any = o
	for part := range strings.SplitSeq(path, ".") {
		in, _ := at.(object)
		at = in[part]
	}
	return at == value
}

func (s *Server) reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // to a client that has gone nothing can be told
}

func (s *Server) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, why string) {
	s.reply(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": string(reason),
		"code": code, "message": fmt.Sprintf("%s: %s", reason, why)})
}
