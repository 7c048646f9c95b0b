// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of both objects.
var GroupVersion = schema.GroupVersion{Group: "culvert.dev", Version: "v1alpha1"}

// AddToScheme makes a scheme know the objects.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &IPPool{}, &IPPoolList{}, &IPBlock{}, &IPBlockList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
