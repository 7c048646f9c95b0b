// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

const (
	blocksResource = "ipblocks"
	poolsResource  = "ippools"
)

// Client reads and writes culvert's own objects. Errors are those of the API server
// (k8s.io/apimachinery/pkg/api/errors).
type Client struct{ rest *rest.RESTClient }

// NewClient makes one for the API server of a configuration, which is not changed. The rates
// let a node claim what a hundred pods need at once.
func NewClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.APIPath, own.GroupVersion = "/apis", &v1alpha1.GroupVersion
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // custom resources know no other
	own.QPS, own.Burst = 50, 100
	client, err := rest.RESTClientFor(own)
	return &Client{client}, err
}

// GetBlock asks the store itself, not the API server's cache.
func (c *Client) GetBlock(ctx context.Context, name string) (*v1alpha1.IPBlock, error) {
	got := &v1alpha1.IPBlock{}
	return got, c.rest.Get().Resource(blocksResource).Name(name).Do(ctx).Into(got)
}

// ListBlocks asks the store itself, too.
func (c *Client) ListBlocks(ctx context.Context) ([]v1alpha1.IPBlock, error) {
	got := &v1alpha1.IPBlockList{}
	return got.Items, c.rest.Get().Resource(blocksResource).Do(ctx).Into(got)
}

// CreateBlock makes a block, without its status: AlreadyExists if there is one of this name.
func (c *Client) CreateBlock(ctx context.Context, b *v1alpha1.IPBlock) (*v1alpha1.IPBlock, error) {
	got := &v1alpha1.IPBlock{}
	return got, c.rest.Post().Resource(blocksResource).Body(b).Do(ctx).Into(got)
}

// UpdateBlock writes all but the status: Conflict if the block is not as b was read.
func (c *Client) UpdateBlock(ctx context.Context, b *v1alpha1.IPBlock) (*v1alpha1.IPBlock, error) {
	got := &v1alpha1.IPBlock{}
	return got, c.rest.Put().Resource(blocksResource).Name(b.Name).Body(b).Do(ctx).Into(got)
}

// UpdateStatus writes the status alone: Conflict as with UpdateBlock.
func (c *Client) UpdateStatus(ctx context.Context, b *v1alpha1.IPBlock) (*v1alpha1.IPBlock, error) {
	got := &v1alpha1.IPBlock{}
	return got, c.rest.Put().Resource(blocksResource).Name(b.Name).SubResource("status").Body(b).Do(ctx).Into(got)
}

// DeleteBlock deletes the block as b was read: Conflict if it is not so any more.
func (c *Client) DeleteBlock(ctx context.Context, b *v1alpha1.IPBlock) error {
	return c.rest.Delete().Resource(blocksResource).Name(b.Name).Body(&metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion},
	}).Do(ctx).Error()
}

// watch is what a reflector follows.
func (c *Client) watch(resource string) cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.rest, resource, metav1.NamespaceAll, fields.Everything())
}
