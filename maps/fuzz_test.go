// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"encoding/json"
	"reflect"
	"testing"
	"unsafe"

	"github.com/culvert-cni/culvert/bpf"
)

// FuzzRows: a row of any bytes, as another version of the datapath or bpftool may have left
// it, can be read and told; what of it can be written again says the same.
func FuzzRows(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\xf4\x00\x02\x90\x1f\x06\x00"))
	f.Add([]byte("\x05\x00\x00\x00net\x00c1\x00eth0\x00/run/netns/a\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := decodePod(row2[bpf.DatapathPodKey, bpf.DatapathPod](data))
		again(t, pod, func() (Pod, error) { k, v, err := encodePod(pod); return decodePod(&k, &v), err })
		iface := decodeIface(row2[bpf.DatapathIfaceKey, bpf.DatapathIface](data))
		again(t, iface, func() (Iface, error) { k, v, err := encodeIface(iface); return decodeIface(&k, &v), err })
		cidr := decodeCidr(row2[bpf.DatapathCidrKey, bpf.DatapathCidr](data))
		again(t, cidr, func() (Cidr, error) {
			k, err := encodeCidrKey(cidr.Prefix)
			if err != nil {
				return Cidr{}, err
			}
			v, err := encodeNetworks(cidr.Networks)
			return decodeCidr(&k, &v), err
		})
		_, config := row2[uint32, bpf.DatapathNodeConfig](data)
		node := decodeConfig(config)
		again(t, node, func() (NodeConfig, error) { v, err := encodeConfig(node); return decodeConfig(&v), err })
		port := decodeHostport(row2[bpf.DatapathHostportKey, bpf.DatapathHostport](data))
		again(t, port.Key(), func() (HostportKey, error) {
			k := encodeHostportKey(port.Key())
			return decodeHostport(&k, &bpf.DatapathHostport{}).Key(), nil
		})
		flows := Flows{halfOpen: len(data)%2 == 0}
		tell(t, flows.decode(row2[bpf.DatapathTuple, bpf.DatapathFlow](data)))
		tell(t, decodeFragment(row2[bpf.DatapathFragmentKey, bpf.DatapathFragment](data)))
		tell(t, decodeLimit(row2[bpf.DatapathLimitKey, bpf.DatapathLimit](data)))
	})
}

// row2 fills a key and a value with the bytes that there are, as the kernel would.
func row2[K, V any](data []byte) (*K, *V) {
	var key K
	var value V
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&key)), unsafe.Sizeof(key)), data)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), unsafe.Sizeof(value)), data[n:])
	return &key, &value
}

func again[T any](t *testing.T, was T, write func() (T, error)) {
	t.Helper()
	tell(t, was)
	if now, err := write(); err == nil && !reflect.DeepEqual(was, now) {
		t.Errorf("written and read again:\n%+v was\n%+v", now, was)
	}
}

func tell(t *testing.T, row any) {
	t.Helper()
	if _, err := json.Marshal(row); err != nil {
		t.Errorf("%+v cannot be told: %v", row, err)
	}
}
