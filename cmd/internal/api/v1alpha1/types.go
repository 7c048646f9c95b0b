// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the two objects of the Kubernetes API that are culvert's: IPPool, a
// range that nodes take blocks from, and IPBlock, one node's part of the cluster's addresses.
// Together the blocks are the cluster's routing table: what a node does not have is with the
// node, and behind the addresses, that the longest matching block names.
//
// +kubebuilder:object:generate=true
// +groupName=culvert.dev
package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPool is a range of addresses that nodes take blocks from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Block size",type=integer,JSONPath=`.spec.blockSize`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Disabled",type=boolean,JSONPath=`.spec.disabled`
// +kubebuilder:printcolumn:name="Reserved",type=string,JSONPath=`.spec.reserved`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPPoolSpec `json:"spec"`
}

// IPPoolSpec is what an administrator says of a pool.
//
// +kubebuilder:validation:XValidation:rule="has(self.blockSize) == has(oldSelf.blockSize)",message="blockSize cannot be changed"
type IPPoolSpec struct {
	// CIDR is the whole range, of either family. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="not a range of addresses, as 10.0.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr cannot be changed"
	CIDR string `json:"cidr"`

	// BlockSize is the length of a block's prefix: 26 is 64 addresses. It cannot be changed.
	// Without it 26, or 122 for IPv6; a pool that is smaller than that is one block.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="blockSize cannot be changed"
	BlockSize int32 `json:"blockSize,omitempty"`

	// NodeSelector is a label selector as kubectl takes it: the nodes that take blocks of this
	// pool unasked. Empty: all. A pod that names the pool gets an address of it on any node.
	//
	// +optional
	NodeSelector string `json:"nodeSelector,omitempty"`

	// Disabled pools give no more blocks, and no more addresses. Pods keep those that they have.
	//
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// Reserved are addresses and ranges that no pod gets.
	//
	// +optional
	Reserved []string `json:"reserved,omitempty"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPPool `json:"items"`
}

// IPBlock is a range that one node has. Its name is made of its range, so that the API server
// lets one node alone create it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Of",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Via",type=string,JSONPath=`.spec.via`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPBlockSpec `json:"spec"`
	// +optional
	Status IPBlockStatus `json:"status,omitempty"`
}

// IPBlockSpec says where a range is. The node's agent writes it.
type IPBlockSpec struct {
	CIDR string `json:"cidr"`
	// Pool is the pool that the block was taken from; empty for a range that the cluster gave
	// the node (node.spec.podCIDRs).
	//
	// +optional
	Pool string `json:"pool,omitempty"`
	// Node has the range.
	Node string `json:"node"`
	// Via are the node's own addresses: where the other nodes send what is for the range.
	Via []string `json:"via"`
}

// IPBlockStatus is what the node has given of the range, as of a moment ago.
type IPBlockStatus struct {
	// Capacity is how many addresses pods can have of the range, 2^31-1 if there are more.
	Capacity int32 `json:"capacity"`
	// Size is capacity for people: the number, or a power of two where capacity cannot say it.
	//
	// +optional
	Size string `json:"size,omitempty"`
	// Used is how many of them pods have.
	Used int32 `json:"used"`
	// Allocations by ordinal: the address less the first of the range. At most 4,096 are listed.
	// They are one value to the API server, which else keeps a record of its own for each.
	//
	// +optional
	// +listType=atomic
	Allocations []Allocation `json:"allocations,omitempty"`
	// Next is the ordinal that the search for an address which was never given starts from.
	//
	// +optional
	Next int64 `json:"next,omitempty"`
	// Released are ordinals that pods had, the one that is given first before the others, and
	// at most 256.
	//
	// +optional
	// +listType=atomic
	Released []int64 `json:"released,omitempty"`
}

// Allocation is one address and who has it.
type Allocation struct {
	Ordinal int64  `json:"ordinal"`
	Address string `json:"address"`
	// Namespace and Pod are empty as long as the API server does not say who has the address.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Pod string `json:"pod,omitempty"`
	// Container is the id of the sandbox.
	Container string      `json:"container"`
	Since     metav1.Time `json:"since"`
}

// IPBlockList is a list of blocks.
//
// +kubebuilder:object:root=true
type IPBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPBlock `json:"items"`
}
