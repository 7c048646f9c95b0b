// SPDX-License-Identifier: Apache-2.0

// Package api holds the versions of culvert's objects in the Kubernetes API, and makes of the
// types their copies and the definitions that the API server is given.
package api

//go:generate go tool -modfile=../../../test/tools/controller-gen.mod controller-gen object:headerFile=header.txt paths=./v1alpha1
//go:generate go tool -modfile=../../../test/tools/controller-gen.mod controller-gen crd:headerFile=header.yaml paths=./v1alpha1 output:crd:dir=../../../deploy/crds
