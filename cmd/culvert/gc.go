// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// The list of attachments has two names: CNI 1.1's text has the first, libcni writes both.
var attachmentKeys = []string{"cni.dev/valid-attachments", "cni.dev/attachments"}

// gc is GC: ours first, then the IPAM plugin's.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	top, c, err := parseBasics(args.StdinData)
	if err == nil {
		err = firstError(c.parseIPAM(top), c.parseNode(top), c.parseAttachments(top))
	}
	if err != nil {
		return err
	}
	s, err := openSession("GC", args, c)
	if err != nil {
		return err
	}
	defer s.close()
	dp, err := s.ensure()
	if err != nil {
		return err
	}
	defer dp.Close()
	s.repair(dp)
	done, err := podnet.GC(s.deps(dp), c.name, c.attachments)
	if c.ipamType == "" {
		return err
	}
	return errors.Join(err, s.collectAddresses(ctx, done))
}

// collectAddresses forwards GC, with the list under both names. If the runtime gave
// none, the IPAM plugin gets the attachments that live: host-local takes an absent list
// for an empty one and would free addresses in use. Where these are not known, nothing
// is forwarded.
func (s *session) collectAddresses(ctx context.Context, done podnet.Collected) error {
	valid := s.conf.attachments
	if valid == nil {
		if done.Partial {
			s.log.Warn("addresses are not collected: there are pods that no row tells of")
			return nil
		}
		valid = done.Left
	}
	list := []types.GCAttachment{}
	for _, a := range valid {
		list = append(list, types.GCAttachment{ContainerID: a.Container, IfName: a.IfName})
	}
	var conf map[string]any
	if err := json.Unmarshal(s.args.StdinData, &conf); err != nil {
		return err
	}
	for _, key := range attachmentKeys {
		conf[key] = list
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	return s.ipamWith(stdin).GC(ctx)
}

// parseAttachments leaves nil where there is no list; an empty list stays one.
func (c *conf) parseAttachments(top netconf.Object) error {
	for _, key := range attachmentKeys {
		if !top.Has(key) {
			continue
		}
		c.attachments = []podnet.Attachment{}
		return top.List(key, func(path string, raw json.RawMessage) error {
			var a types.GCAttachment
			if err := json.Unmarshal(raw, &a); err != nil || a.ContainerID == "" || a.IfName == "" {
				return netconf.Bad(path, netconf.Show(raw), "not a containerID and an ifname")
			}
			c.attachments = append(c.attachments, podnet.Attachment{Container: a.ContainerID, IfName: a.IfName})
			return nil
		})
	}
	return nil
}
