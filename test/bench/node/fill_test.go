// SPDX-License-Identifier: Apache-2.0

package node

import "testing"

func TestCopyIPTables(t *testing.T) {
	const saved = `*nat
:PREROUTING ACCEPT [0:0]
:CNI-8b35c245b82fcef79e90c914 - [0:0]
:CNI-DN-8b35c245b82fcef79e90c - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.244.0.2/32 -j CNI-8b35c245b82fcef79e90c914
-A CNI-DN-8b35c245b82fcef79e90c -p tcp -m tcp --dport 20000 -j DNAT --to-destination 10.244.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 20000 -j CNI-DN-8b35c245b82fcef79e90c
COMMIT
`
	const want = `*nat
:CNI-8b35c245b82fc00000001914 - [0:0]
:CNI-DN-8b35c245b82fc00000001 - [0:0]
:CNI-8b35c245b82fc00000002914 - [0:0]
:CNI-DN-8b35c245b82fc00000002 - [0:0]
-A POSTROUTING -s 10.244.128.1/32 -j CNI-8b35c245b82fc00000001914
-A CNI-DN-8b35c245b82fc00000001 -p tcp -m tcp --dport 20001 -j DNAT --to-destination 10.244.128.1:80
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 20001 -j CNI-DN-8b35c245b82fc00000001
-A POSTROUTING -s 10.244.128.2/32 -j CNI-8b35c245b82fc00000002914
-A CNI-DN-8b35c245b82fc00000002 -p tcp -m tcp --dport 20002 -j DNAT --to-destination 10.244.128.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 20002 -j CNI-DN-8b35c245b82fc00000002
COMMIT
`
	got, err := copyIPTables(saved, "10.244.0.2", 3)
	if err != nil || got != want {
		t.Errorf("copyIPTables: %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := copyIPTables("*nat\nCOMMIT\n", "10.244.0.2", 3); err == nil {
		t.Errorf("copyIPTables without a pod's chain: %q, want an error", got)
	}
}

func TestCopyNFT(t *testing.T) {
	const listed = `table inet cni_plugins_masquerade {
	chain masq_checks {
		ip saddr 10.244.0.2 ip daddr != 10.244.0.0/16 masquerade comment "a"
		ip saddr 10.244.0.21 ip daddr != 10.244.0.0/16 masquerade comment "b"
	}
}
table ip cni_hostport {
	chain hostports {
		tcp dport 20000 dnat to 10.244.0.2:80 comment "pod1"
	}
}
`
	const want = `add rule inet cni_plugins_masquerade masq_checks ip saddr 10.244.128.1 ip daddr != 10.244.0.0/16 masquerade comment "a"
add rule ip cni_hostport hostports tcp dport 20001 dnat to 10.244.128.1:80 comment "pod1"
`
	got, err := copyNFT(listed, "10.244.0.2", 2)
	if err != nil || got != want {
		t.Errorf("copyNFT: %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := copyNFT(listed, "10.244.0.3", 2); err == nil {
		t.Errorf("copyNFT of a pod without rules: %q, want an error", got)
	}
}

func TestCopyRule6(t *testing.T) {
	got := copyRule("-d fd00:244::2/128 --dport 20000 [fd00:244::2]:80", "fd00:244::2", 300)
	if want := "-d fd00:244::1:12c/128 --dport 20300 [fd00:244::1:12c]:80"; got != want {
		t.Errorf("copyRule = %q, want %q", got, want)
	}
}

func TestCopyRule(t *testing.T) {
	for i, want := range map[int]string{
		1:    "10.244.128.1 20001",
		255:  "10.244.128.255 20255",
		256:  "10.244.129.0 20256",
		4999: "10.244.147.135 24999",
	} {
		if got := copyRule("10.244.0.2 20000", "10.244.0.2", i); got != want {
			t.Errorf("copyRule(%d) = %q, want %q", i, got, want)
		}
	}
}
