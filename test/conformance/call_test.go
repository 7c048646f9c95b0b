// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// call is a row: one verb, and what comes of it.
type call struct {
	name string
	verb string

	// What was done before, each by its configuration's keys ("-": none beside the usual):
	// an ADD of the same attachment, and one of another container.
	first, other string

	env   []string // beside the usual: "CNI_IFNAME=net1"; "-CNI_IFNAME": not set
	conf  string   // keys over the usual configuration, as JSON without braces
	stdin string   // the whole of it instead

	code  uint     // 0: success
	words []string // regular expressions that stdout matches, JSON without blanks
	ports []string // rows of hostports afterwards, as stage.hostports lists them
}

// usual is the configuration that conf is laid over. Words in < > are filled in.
const usual = `{"cniVersion":"1.1.0","name":"net","type":"culvert","pinPath":"<PIN>",
	"ipam":{"type":"host-local","dataDir":"<IPAM>","ranges":[[{"subnet":"10.244.0.0/24"}],[{"subnet":"fd00:244::/64"}]]}}`

// static is an ipam section with fixed addresses.
func static(addrs ...string) string {
	for i, a := range addrs {
		addrs[i] = `{"address":"` + a + `"}`
	}
	return `"ipam":{"type":"static","addresses":[` + strings.Join(addrs, ",") + `]}`
}

// scene is one row in the making.
type scene struct {
	*stage
	pod, second *netns.NS
	result      string // of first
}

// fill writes the scene's paths into a text.
func (s *scene) fill(text string) string {
	return strings.NewReplacer("<PIN>", s.PinPath, "<IPAM>", s.DataDir, "<POD>", s.pod.Path(), "<NODE>", s.Path(),
		"<RESULT>", s.result).Replace(text)
}

// config lays keys over the usual configuration.
func (s *scene) config(t *testing.T, keys string) string {
	t.Helper()
	conf := map[string]json.RawMessage{}
	for _, text := range []string{s.fill(usual), "{" + s.fill(strings.TrimPrefix(keys, "-")) + "}"} {
		if err := json.Unmarshal([]byte(text), &conf); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	for key, value := range conf {
		if string(value) == "null" {
			delete(conf, key)
		}
	}
	out, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// environ is what a runtime would set, changed by more.
func (s *scene) environ(verb, container string, ns *netns.NS, more []string) []string {
	env := []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + ns.Path(), "CNI_IFNAME=eth0", "CNI_PATH=" + s.path()}
	for _, change := range more {
		name, _, set := strings.Cut(strings.TrimPrefix(change, "-"), "=")
		env = slices.DeleteFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
		if set {
			env = append(env, s.fill(change))
		}
	}
	return env
}

// calls runs a table on one node.
func calls(t *testing.T, s *stage, table []call) {
	t.Helper()
	for _, c := range table {
		try(t, c.name, func(t *testing.T) {
			c.play(t, &scene{stage: s, pod: netns.New(t, "pod"), second: netns.New(t, "other")})
		})
	}
}

func (c call) play(t *testing.T, s *scene) {
	empty := s.footprint(t)
	t.Cleanup(func() {
		c.clean(t, s)
		s.unchanged(t, empty)
	})
	if c.other != "" {
		s.prepare(t, "c2", s.second, c.other)
	}
	if c.first != "" {
		s.result = s.prepare(t, "c1", s.pod, c.first)
	}
	before, stdin := s.footprint(t), s.fill(c.stdin)
	if c.stdin == "" {
		stdin = s.config(t, c.conf)
	}
	a := s.run(t, s.environ(c.verb, "c1", s.pod, c.env), stdin)
	c.judge(t, a)
	if c.code != 0 {
		s.unchanged(t, before)
	} else if got := s.hostports(t); c.ports != nil && !slices.Equal(got, c.ports) {
		t.Errorf("hostports: got %q, want %q", got, c.ports)
	}
}

// clean deletes whatever the row may have made.
func (c call) clean(t *testing.T, s *scene) {
	if c.verb == "ADD" && c.code == 0 {
		stdin := s.fill(c.stdin)
		if stdin == "" {
			stdin = s.config(t, c.conf)
		}
		if a := s.run(t, s.environ("DEL", "c1", s.pod, c.env), stdin); a.status != 0 {
			t.Errorf("DEL as the ADD was: %s", a.stdout)
		}
	}
	for id, ns := range map[string]*netns.NS{"c1": s.pod, "c2": s.second} {
		for _, keys := range []string{c.first, c.other} {
			if a := s.run(t, s.environ("DEL", id, ns, nil), s.config(t, keys)); a.status != 0 {
				t.Errorf("DEL %s: %s", id, a.stdout)
			}
		}
	}
}

// prepare is an ADD that is to succeed; it gives the result.
func (s *scene) prepare(t *testing.T, id string, ns *netns.NS, keys string) string {
	t.Helper()
	a := s.run(t, s.environ("ADD", id, ns, nil), s.config(t, keys))
	if a.status != 0 {
		t.Fatalf("ADD %s before: %s", id, a.stdout)
	}
	return a.stdout
}

// judge holds an answer to its row.
func (c call) judge(t *testing.T, a said) {
	t.Helper()
	a.sane(t)
	switch {
	case c.code != 0:
		if e := a.cniError(t); a.status == 0 || e.Code != c.code {
			t.Errorf("exit %d, code %d (%s: %s), want code %d", a.status, e.Code, e.Msg, e.Details, c.code)
		}
	case a.status != 0:
		t.Fatalf("exit %d: %s", a.status, a.stdout)
	case c.verb != "ADD" && c.verb != "VERSION" && a.stdout != "":
		t.Errorf("%s prints %q", c.verb, a.stdout)
	}
	if a.stderr != "" && c.verb != "" {
		t.Errorf("stderr: %q", a.stderr)
	}
	said := tight(a.stdout)
	for _, word := range c.words {
		if !regexp.MustCompile(word).MatchString(said) {
			t.Errorf("nothing matches %q in %s", word, said)
		}
	}
}

// tight takes the blanks between a JSON's words away.
func tight(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	out, _ := json.Marshal(v)
	return string(out)
}
