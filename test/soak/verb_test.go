// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// tally is what was done: verbs that came to their end, and those that were killed.
type tally struct {
	adds, dels, checks, gcs, statuses, limits, kills, requests, errors atomic.Uint64

	busy   atomic.Uint64 // error 11
	builds atomic.Uint64

	mu    sync.Mutex
	drops map[dropped]uint64
}

// dropped is a counter of packets.
type dropped struct {
	why     string
	ifindex int
}

// drop notes what a counter says; it may be said often.
func (t *tally) drop(why string, ifindex int, packets uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drops == nil {
		t.drops = map[dropped]uint64{}
	}
	t.drops[dropped{why, ifindex}] = packets
}

// dropped is the packets of all devices by what they were dropped for.
func (t *tally) dropped() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := map[string]uint64{}
	for d, n := range t.drops {
		sum[d.why] += n
	}
	return sum
}

func (t *tally) of(verb string) *atomic.Uint64 {
	return map[string]*atomic.Uint64{
		"ADD": &t.adds, "DEL": &t.dels, "CHECK": &t.checks, "GC": &t.gcs, "STATUS": &t.statuses, "limits": &t.limits,
	}[verb]
}

// pace knows how long verbs take, so that kills come at any moment of theirs.
type pace struct {
	mu   sync.Mutex
	mean map[string]time.Duration
}

func (p *pace) note(verb string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == nil {
		p.mean = map[string]time.Duration{}
	}
	if was, ok := p.mean[verb]; ok {
		took = (7*was + took) / 8
	}
	p.mean[verb] = took
}

// kill says after what time a verb is to be killed: 0 for most, which are not.
func (s *soak) kill(rng *rand.Rand, verb string) time.Duration {
	if rng.IntN(4) > 0 {
		return 0
	}
	s.pace.mu.Lock()
	defer s.pace.mu.Unlock()
	return time.Duration(rng.Float64() * 1.2 * float64(max(s.pace.mean[verb], 10*time.Millisecond)))
}

// errKilled is the end of a verb that we ended.
var errKilled = errors.New("killed")

// tryAgain is the error of who waited for the node's lock for long: on a busy machine the
// load of the programs alone takes that long. A runtime comes again.
const tryAgain, mostTries = 11, 3

// verb runs the plugin as a runtime would.
func (s *soak) verb(verb string, kill time.Duration, env map[string]string, conf map[string]any) (out []byte, err error) {
	for range mostTries {
		if out, err = s.once(verb, kill, env, conf); netns.Code(err) != tryAgain {
			break
		}
		s.tally.busy.Add(1)
	}
	return out, err
}

func (s *soak) once(verb string, kill time.Duration, env map[string]string, conf map[string]any) ([]byte, error) {
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	cmd := s.group.command(filepath.Join(s.node.Bin.Dir, "culvert"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_PATH="+s.node.Bin.Dir+":"+s.node.Bin.Ref)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := s.run(verb, cmd, kill)
	ce := &netns.CNIError{}
	if err != nil && json.Unmarshal(out, ce) == nil && ce.Code != 0 {
		return nil, ce
	}
	return out, err
}

// run runs a command in the node, or kills it after a while. A plugin that it had started
// goes on alone: that is waited for, since a runtime's next verb comes seconds later.
func (s *soak) run(verb string, cmd *exec.Cmd, kill time.Duration) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	start := time.Now()
	if err := s.node.Start(cmd); err != nil {
		return nil, err
	}
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if kill > 0 && cmd.ProcessState.Sys().(interface{ Signaled() bool }).Signaled() {
		s.tally.kills.Add(1)
		return nil, errors.Join(errKilled, orphans(cmd.Process.Pid))
	}
	s.pace.note(verb, time.Since(start))
	s.tally.of(verb).Add(1)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return stdout.Bytes(), err
}

// orphans waits until nobody of a process group is left.
func orphans(group int) error {
	return netns.Poll(func() error {
		if err := unix.Kill(-group, 0); errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("process group %d goes on", group)
	})
}

// again runs what may be killed the first time and has to succeed then.
func (s *soak) again(what string, kill time.Duration, f func(kill time.Duration) error) bool {
	err := f(kill)
	if errors.Is(err, errKilled) {
		err = f(0)
	}
	if err != nil {
		s.fail("%s: %v", what, err)
	}
	return err == nil
}

func (s *soak) status(rng *rand.Rand) {
	s.still.RLock()
	defer s.still.RUnlock()
	s.again("STATUS", s.kill(rng, "STATUS"), func(kill time.Duration) error {
		_, err := s.verb("STATUS", kill, nil, s.node.Conf())
		return err
	})
}

// rebuild has the next verb believe that another build is loaded: it replaces the programs.
func (s *soak) rebuild() {
	s.still.Lock()
	defer s.still.Unlock()
	set, err := maps.Open(filepath.Join(s.node.PinPath, "v1", "maps"))
	if err == nil {
		defer set.Close()
		var config maps.NodeConfig
		if config, err = set.Config.Get(); err == nil {
			config.Build++
			err = set.Config.Put(config)
		}
	}
	if err != nil {
		s.fail("pretend another build: %v", err)
	}
	s.tally.builds.Add(1)
}

// collect is GC, most times with the list of those that live.
func (s *soak) collect(rng *rand.Rand, kill time.Duration) {
	s.still.Lock()
	defer s.still.Unlock()
	s.collectNow(rng.IntN(4) > 0, kill)
}

// collectNow is collect for who holds still. With a list nothing torn is left.
func (s *soak) collectNow(list bool, kill time.Duration) {
	conf := s.node.Conf()
	if list {
		valid := []map[string]any{}
		for _, p := range s.slots {
			if p.state == alive {
				valid = append(valid, map[string]any{"containerID": p.id, "ifname": "eth0"})
			}
		}
		conf["cni.dev/valid-attachments"] = valid
	}
	ok := s.again("GC", kill, func(kill time.Duration) error {
		_, err := s.verb("GC", kill, nil, conf)
		return err
	})
	for _, p := range s.slots {
		if ok && list {
			p.collected()
		}
	}
}
