// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"unsafe"

	"github.com/culvert-cni/culvert/bpf"
)

// FuzzRows: a row of any bytes, as another version of the datapath or bpftool may have left
// it, can be read and told; a row that we wrote is read as it was written.
func FuzzRows(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\xf4\x00\x02\x90\x1f\x06\x00"))
	f.Add([]byte("\x05\x00\x00\x00net\x00c1\x00eth0\x00/run/netns/a\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		again(t, decodePod(fill[bpf.DatapathPodKey, bpf.DatapathPod](data)), func(p Pod) (Pod, error) {
			k, v, err := encodePod(p)
			return decodePod(&k, &v), err
		})
		again(t, decodeIface(fill[bpf.DatapathIfaceKey, bpf.DatapathIface](data)), func(i Iface) (Iface, error) {
			k, v, err := encodeIface(i)
			return decodeIface(&k, &v), err
		})
		again(t, decodeCidr(fill[bpf.DatapathCidrKey, bpf.DatapathCidr](data)), func(c Cidr) (Cidr, error) {
			k, err1 := encodeCidrKey(c.Prefix)
			v, err2 := encodeNetworks(c.Networks)
			return decodeCidr(&k, &v), errors.Join(err1, err2)
		})
		_, config := fill[uint32, bpf.DatapathNodeConfig](data)
		again(t, decodeConfig(config), func(c NodeConfig) (NodeConfig, error) {
			v, err := encodeConfig(c)
			return decodeConfig(&v), err
		})
		port := decodeHostport(fill[bpf.DatapathHostportKey, bpf.DatapathHostport](data))
		again(t, port.Key(), func(h HostportKey) (HostportKey, error) {
			k := encodeHostportKey(h)
			return decodeHostport(&k, &bpf.DatapathHostport{}).Key(), nil
		})
		flows := Flows{halfOpen: len(data)%2 == 0}
		tell(t, flows.decode(fill[bpf.DatapathTuple, bpf.DatapathFlow](data)))
		tell(t, decodeFragment(fill[bpf.DatapathFragmentKey, bpf.DatapathFragment](data)))
		tell(t, decodeLimit(fill[bpf.DatapathLimitKey, bpf.DatapathLimit](data)))
	})
}

// fill makes a key and a value of the bytes that there are.
func fill[K, V any](data []byte) (*K, *V) {
	var key K
	var value V
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&key)), unsafe.Sizeof(key)), data)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), unsafe.Sizeof(value)), data[n:])
	return &key, &value
}

// again writes and reads twice: not every row that can be read is one that we write.
func again[T any](t *testing.T, found T, write func(T) (T, error)) {
	t.Helper()
	tell(t, found)
	was, err := write(found)
	if err != nil {
		return
	}
	if now, err := write(was); err != nil || !reflect.DeepEqual(was, now) {
		t.Errorf("written and read again, %v:\n%+v was\n%+v", err, now, was)
	}
}

func tell(t *testing.T, row any) {
	t.Helper()
	if _, err := json.Marshal(row); err != nil {
		t.Errorf("%+v cannot be told: %v", row, err)
	}
}
