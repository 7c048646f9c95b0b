// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fakeAPI has one node, whose conditions it merges as the API server does, and takes Events.
type fakeAPI struct {
	mu      sync.Mutex
	node    corev1.Node
	patches int
	events  []corev1.Event
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer any = &f.node
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/n1":
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/n1/status" && r.Header.Get("Content-Type") == "application/strategic-merge-patch+json":
		var patch corev1.Node
		if json.NewDecoder(r.Body).Decode(&patch) != nil || len(patch.Status.Conditions) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		f.patches++
		f.node.Status.Conditions = patch.Status.Conditions
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		var e corev1.Event
		_ = json.NewDecoder(r.Body).Decode(&e)
		f.events = append(f.events, e)
		answer = e
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestNodeTeller(t *testing.T) {
	api := &fakeAPI{node: corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	server := httptest.NewServer(api)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	teller := NewNodeTeller(client, "n1")
	defer teller.Close()
	up := func(why error, patches int, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		t.Helper()
		if err := teller.Up(t.Context(), why); err != nil {
			t.Fatal(err)
		}
		c := api.node.Status.Conditions[0]
		if api.patches != patches || c.Type != corev1.NodeNetworkUnavailable || c.Status != status || c.Reason != reason || c.Message != message {
			t.Errorf("patch %d: %+v", api.patches, c)
		}
		return c
	}
	const fine = "culvert can start pods on this node"
	up(nil, 1, corev1.ConditionFalse, "CulvertIsUp", fine)
	up(nil, 1, corev1.ConditionFalse, "CulvertIsUp", fine)
	since := metav1.NewTime(time.Unix(1, 0).UTC())
	api.node.Status.Conditions[0].LastTransitionTime = since
	if c := up(errors.New("full"), 2, corev1.ConditionTrue, "CulvertIsDown", "full"); c.LastTransitionTime.Time.Equal(since.Time) {
		t.Error("the time of the change is the one before")
	}
	api.node.Status.Conditions[0].LastTransitionTime = since
	if c := up(errors.New("worse"), 3, corev1.ConditionTrue, "CulvertIsDown", "worse"); !c.LastTransitionTime.Time.Equal(since.Time) {
		t.Error("another reason counts as a change of the status")
	}

	teller.Warn("CulvertRoutesFailed", "no way")
	deadline := time.After(10 * time.Second)
	for {
		api.mu.Lock()
		events := api.events
		api.mu.Unlock()
		if len(events) > 0 {
			if e := events[0]; e.Type != "Warning" || e.Reason != "CulvertRoutesFailed" || e.Message != "no way" || e.InvolvedObject.Name != "n1" || e.InvolvedObject.UID != "n1" {
				t.Errorf("event %+v", e)
			}
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("no event")
		}
	}
}
