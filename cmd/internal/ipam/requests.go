// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"slices"
	"strings"
)

// Args are the pairs of CNI_ARGS ("K8S_POD_NAME=a;IP=10.1.2.3") that can be read; what
// cannot is left out. Names are compared without regard to case.
func Args(s string) map[string]string {
	args := map[string]string{}
	for _, pair := range strings.Split(s, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			args[strings.ToUpper(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return args
}

// requests gives what the IPAM plugin is to read. There are three ways to ask for an
// address; host-local wants them all, in one range, and fails. The strongest stays:
// runtimeConfig.ips, then args.cni.ips, then IP in CNI_ARGS. Names that the plugin does
// not know in CNI_ARGS are no error, whatever the runtime forgot to say of them.
// What cannot be decoded is left for the plugin to judge.
func requests(stdin []byte, cniArgs string) ([]byte, string) {
	var conf struct {
		RuntimeConfig map[string]json.RawMessage
		Args          struct {
			CNI map[string]json.RawMessage
		}
	}
	_ = json.Unmarshal(stdin, &conf)
	byRuntime, byArgs := holdsIPs(conf.RuntimeConfig), holdsIPs(conf.Args.CNI)
	if byRuntime && byArgs {
		stdin = withoutArgsIPs(stdin)
	}
	return stdin, cleanArgs(cniArgs, byRuntime || byArgs)
}

func holdsIPs(m map[string]json.RawMessage) bool {
	for key, raw := range m {
		var ips []json.RawMessage
		if strings.EqualFold(key, "ips") && json.Unmarshal(raw, &ips) == nil && len(ips) > 0 {
			return true
		}
	}
	return false
}

// withoutArgsIPs takes args.cni.ips out; args holds nothing else that an IPAM plugin of
// the conventions reads.
func withoutArgsIPs(stdin []byte) []byte {
	var conf map[string]json.RawMessage
	if json.Unmarshal(stdin, &conf) != nil {
		return stdin
	}
	delete(conf, "args")
	if out, err := json.Marshal(conf); err == nil {
		return out
	}
	return stdin
}

// cleanArgs keeps the pairs that the reference library can read: it fails on an empty
// pair, on a second "=", and on a name that it does not know unless told otherwise.
func cleanArgs(s string, dropIP bool) string {
	if s == "" {
		return ""
	}
	pairs := slices.DeleteFunc(strings.Split(s, ";"), func(pair string) bool {
		name, _, ok := strings.Cut(pair, "=")
		return !ok || strings.Count(pair, "=") != 1 || name == "IgnoreUnknown" || dropIP && name == "IP"
	})
	return strings.Join(append([]string{"IgnoreUnknown=1"}, pairs...), ";")
}
