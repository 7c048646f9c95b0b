// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	// The condition's reasons.
	reasonUp   = "CulvertIsUp"
	reasonDown = "CulvertIsDown"

	// apiPatience bounds a call: the node's own work is not to wait for an API server.
	apiPatience = 5 * time.Second
)

// NodeTeller tells by Events of the Node, and by its condition NetworkUnavailable.
type NodeTeller struct {
	client   kubernetes.Interface
	node     *corev1.ObjectReference
	events   record.EventRecorder
	shutdown func()
}

// NewNodeTeller makes one; Close ends what it started.
func NewNodeTeller(client kubernetes.Interface, node string) *NodeTeller {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &NodeTeller{
		client: client, shutdown: b.Shutdown,
		// kubectl describe node finds Events by the name, which the kubelet takes for the UID too.
		node:   &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: types.UID(node)},
		events: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "culvertd", Host: node}),
	}
}

// Close loses what has not been sent.
func (t *NodeTeller) Close() { t.shutdown() }

// Warn implements Teller.
func (t *NodeTeller) Warn(reason, what string) {
	t.events.Event(t.node, corev1.EventTypeWarning, reason, what)
}

// Tell implements Teller.
func (t *NodeTeller) Tell(reason, what string) {
	t.events.Event(t.node, corev1.EventTypeNormal, reason, what)
}

// Up implements Teller. It writes only what is not said already.
func (t *NodeTeller) Up(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	want := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: reasonUp, Message: "culvert can start pods on this node"}
	if why != nil {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, reasonDown, why.Error()
	}
	node, err := t.client.CoreV1().Nodes().Get(ctx, t.node.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read condition of node: %w", err)
	}
	want.LastHeartbeatTime = metav1.Now()
	want.LastTransitionTime = want.LastHeartbeatTime
	for _, now := range node.Status.Conditions {
		if now.Type != want.Type || now.Status != want.Status {
			continue
		}
		if now.Reason == want.Reason && now.Message == want.Message {
			return nil
		}
		want.LastTransitionTime = now.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}})
	if err != nil {
		return err
	}
	_, err = t.client.CoreV1().Nodes().Patch(ctx, t.node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write condition of node: %w", err)
	}
	return nil
}
