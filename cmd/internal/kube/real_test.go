// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// binEnv names a directory with etcd and kube-apiserver; tests with the real thing are skipped
// without it.
const binEnv = "CULVERT_KUBERNETES_BIN"

const token = "culvert"

// real is a true API server.
type real struct{ config *rest.Config }

func (r real) Config() *rest.Config { return r.config }

// startReal starts etcd and kube-apiserver on 127.0.0.1 until the test ends.
func startReal(t testing.TB) real {
	t.Helper()
	bin := os.Getenv(binEnv)
	if bin == "" {
		t.Skipf("%s is not set to where etcd and kube-apiserver are", binEnv)
	}
	dir := t.TempDir()
	key, tokens := filepath.Join(dir, "key.pem"), filepath.Join(dir, "tokens")
	write(t, key, signingKey(t))
	write(t, tokens, []byte(token+",admin,admin,system:masters\n"))
	etcd, peer, secure := freePort(t), freePort(t), freePort(t)
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	run(t, dir, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+url(etcd), "--advertise-client-urls="+url(etcd),
		"--listen-peer-urls="+url(peer), "--initial-advertise-peer-urls="+url(peer), "--initial-cluster=default="+url(peer))
	run(t, dir, filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+url(etcd), "--cert-dir="+filepath.Join(dir, "certs"),
		"--bind-address=127.0.0.1", "--advertise-address=192.0.2.250", "--endpoint-reconciler-type=none", fmt.Sprintf("--secure-port=%d", secure),
		"--token-auth-file="+tokens, "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://culvert.test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.96.0.0/16")
	config := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", secure), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 1000, Burst: 1000}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Minute); ; <-time.After(200 * time.Millisecond) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		if err == nil {
			return real{config}
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(dir, "kube-apiserver.log"))
			t.Fatalf("kube-apiserver is not ready: %v\n%s", err, log[max(0, len(log)-4000):])
		}
	}
}

// run starts a program that ends with the test, or with the test's process.
func run(t testing.TB, dir, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		log.Close()
	})
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func signingKey(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// raw makes a request with a JSON or YAML body.
func (r real) raw(t testing.TB, verb, path string, body []byte) ([]byte, error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Discovery().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", "application/yaml").
		Body(body).DoRaw(t.Context())
}

// Apply stores an object whatever was there, with its status.
func (r real) Apply(t testing.TB, resource string, o metav1.Object) {
	t.Helper()
	path, version, kind := "/api/v1/"+resource, "v1", "Node"
	switch resource {
	case "namespaces/default/pods":
		kind = "Pod"
	case poolsResource:
		path, version, kind = "/apis/culvert.dev/v1alpha1/"+resource, "culvert.dev/v1alpha1", "IPPool"
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte("apiVersion: "+version+"\nkind: "+kind+"\n"), text...)
	_, err = r.raw(t, "POST", path, text)
	if apierrors.IsAlreadyExists(err) {
		_, err = r.raw(t, "PUT", path+"/"+o.GetName(), r.asItIs(t, path+"/"+o.GetName(), text))
	}
	if err == nil && resource == "nodes" {
		_, err = r.raw(t, "PUT", path+"/"+o.GetName()+"/status", text)
	}
	if err != nil {
		t.Fatalf("apply %s: %v", o.GetName(), err)
	}
}

// asItIs gives an object's text the version that the object has.
func (r real) asItIs(t testing.TB, path string, text []byte) []byte {
	t.Helper()
	is, err := r.raw(t, "GET", path, nil)
	var o, was map[string]any
	if err == nil {
		err = errors.Join(yaml.Unmarshal(is, &was), yaml.Unmarshal(text, &o))
	}
	if err != nil {
		t.Fatal(err)
	}
	o["metadata"].(map[string]any)["resourceVersion"] = was["metadata"].(map[string]any)["resourceVersion"]
	text, err = yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRealAPIServer(t *testing.T) {
	r := startReal(t)
	for _, name := range []string{"ippools", "ipblocks"} {
		text, err := os.ReadFile("../../../deploy/crds/culvert.dev_" + name + ".yaml")
		if err == nil {
			_, err = r.raw(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text)
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { _, err := r.raw(t, "GET", "/apis/culvert.dev/v1alpha1/"+name, nil); return err == nil },
			func() string { return name + " are not served" })
	}
	for what, spec := range map[string]string{
		"range": "{cidr: 10.0.0.1-10.0.0.9}", "block size": "{cidr: 10.0.0.0/16, blockSize: 129}", "nothing": "{}",
	} {
		_, err := r.raw(t, "POST", "/apis/culvert.dev/v1alpha1/ippools",
			[]byte("{apiVersion: culvert.dev/v1alpha1, kind: IPPool, metadata: {name: bad}, spec: "+spec+"}"))
		if !apierrors.IsInvalid(err) {
			t.Errorf("a pool with a bad %s: %v", what, err)
		}
	}
	agents := fiftyNodes(t, r)
	letGo(t, r, agents)
	for _, a := range agents {
		a.stop()
	}
	printed(t, r)
}

// printed logs what kubectl prints of a small cluster, for docs/pools.md: a range of worker-2 is
// worker-3's by now, and one of worker-1's pods names a pool.
func printed(t *testing.T, r real) {
	r.Apply(t, "ippools", aPool("gold", "10.60.0.0/24", 28, func(p *v1alpha1.IPPoolSpec) { p.Reserved = []string{"10.60.0.0/28"} }))
	r.Apply(t, "nodes", aNode("worker-1", "192.168.10.11", "10.244.1.0/24", "fd00:244:1::/64"))
	r.Apply(t, "nodes", aNode("worker-2", "192.168.10.12", "10.244.2.0/24", "fd00:244:2::/64"))
	rich := aPod("worker-1", "rich")
	rich.Annotations = map[string]string{netconf.PoolsAnnotation: "gold"}
	rich.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	r.Apply(t, "namespaces/default/pods", rich)
	one, two := start(t, r, "worker-1", RangesNode, slow), start(t, r, "worker-2", RangesNode, slow)
	two.eventually(t, "ranges", "[10.244.2.0/24 fd00:244:2::/64]", ranges)
	one.eventually(t, "pools", "gold:1", pools)
	state, _ := one.State()
	for _, a := range append(one.holdIn(state.Ranges[0], 23), one.holdIn(state.Ranges[1], 22)...) {
		one.hold(a)
	}
	one.holdIn(state.Pools["gold"][0], 1)
	two.hold("10.244.2.17")
	until(t, func() bool { return blocks(t, two)["10-244-2-0-24"].Status.Used == 1 }, func() string { return "no status" })
	r.Apply(t, "nodes", aNode("worker-3", "192.168.20.13", "10.244.2.0/24"))
	three := start(t, r, "worker-3", RangesNode, slow)
	three.eventually(t, "faults", "RangeConflict", faults)
	if _, err := r.raw(t, "DELETE", "/api/v1/nodes/worker-2", nil); err != nil { // else its ranges cannot be changed
		t.Fatal(err)
	}
	r.Apply(t, "nodes", aNode("worker-2", "192.168.10.12", "10.244.9.0/24"))
	three.eventually(t, "reserved", "[10.244.2.17/32]", reserved)
	until(t, func() bool {
		b := blocks(t, three)
		return b["10-244-9-0-24"].Status.Capacity*b["10-244-2-0-24"].Status.Capacity > 0 &&
			b["10-244-1-0-24"].Status.Used == 23 && b["10-244-2-17-32"].Status.Used == 1
	}, func() string { return owners(t, three) })
	kubectl(t, r)
}

func kubectl(t *testing.T, r real) {
	program := filepath.Join(os.Getenv(binEnv), "kubectl")
	if _, err := os.Stat(program); err != nil {
		return
	}
	for _, args := range [][]string{{"get", "ippools,ipblocks"}, {"get", "ippools,ipblocks", "-o", "wide"}} {
		cmd := exec.Command(program, append([]string{"--server", r.config.Host, "--token", token, "--insecure-skip-tls-verify"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl: %v", err)
		}
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
}
