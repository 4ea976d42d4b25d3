// SPDX-License-Identifier: Apache-2.0

package grpctest

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func expect(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("want %v with %q, got %v", code, text, err)
	}
}

func TestUnary(t *testing.T) {
	s := start(t)
	c := s.dial()
	for i := range 200 {
		if got, err := c.say(within(t, time.Minute), "hello"); err != nil || got != "crisp" {
			t.Fatalf("call %d: %q, %v", i, got, err)
		}
	}
	if _, err := c.ListPodSandbox(within(t, time.Minute), &cri.ListPodSandboxRequest{}); err != nil {
		t.Error("an empty reply:", err)
	}
	s.quiet(c)
}

// Replies around the sizes of frames and windows, where one path through the sender ends and another begins.
func TestReplySizes(t *testing.T) {
	s := start(t)
	c := s.dial()
	for _, around := range []int{1, 100, 16384, 32768, 65535, 65536, 81920, 131070, 1 << 20} {
		for d := -20; d <= 20; d++ {
			if around+d < 0 {
				continue
			}
			got, err := c.say(within(t, time.Minute), "large %d", around+d)
			if err != nil || len(got) != around+d {
				t.Fatalf("%d bytes: got %d, %v", around+d, len(got), err)
			}
		}
	}
	s.quiet(c)
}

func TestErrors(t *testing.T) {
	s := start(t)
	c := s.dial()
	ctx := within(t, time.Minute)
	_, err := c.say(ctx, "fail notfound")
	expect(t, err, codes.NotFound, "pod x does not exist")
	_, err = c.say(ctx, "fail long")
	expect(t, err, codes.FailedPrecondition, strings.Repeat("0", 699)+"7")
	_, err = c.say(ctx, "fail text")
	expect(t, err, codes.Unavailable, "größer als 100 %, \"日本語\"\nnext\x01 line")
	_, err = c.say(ctx, "reply-then-fail")
	expect(t, err, codes.NotFound, "pod x")
	_, err = c.say(ctx, "silent")
	expect(t, err, codes.Internal, "no reply")
	_, err = c.say(ctx, "badtext")
	expect(t, err, codes.Internal, "runtime_name")
	_, err = c.Status(ctx, &cri.StatusRequest{})
	expect(t, err, codes.Unimplemented, "/runtime.v1.RuntimeService/Status")
	err = c.conn.Invoke(ctx, "/runtime.v1.RuntimeService/Nonsense", &cri.StatusRequest{}, &cri.StatusResponse{})
	expect(t, err, codes.Unimplemented, "/runtime.v1.RuntimeService/Nonsense")
	err = c.conn.Invoke(ctx, "/", &cri.StatusRequest{}, &cri.StatusResponse{})
	expect(t, err, codes.Unimplemented, "")
	_, err = c.Version(ctx, &cri.VersionRequest{Version: "x"}, grpc.UseCompressor(gzip.Name))
	expect(t, err, codes.Unimplemented, "compressed")
	s.quiet(c)
}

// raw passes bytes as a message.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) ([]byte, error) {
	return *v.(*[]byte), nil
}
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

func TestStrings(t *testing.T) {
	s := start(t)
	c := s.dial()
	send := func(method string, request string) error {
		in, out := []byte(request), []byte{}
		return c.conn.Invoke(within(t, time.Minute), method, &in, &out, grpc.ForceCodec(raw{}))
	}
	version, list := "/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/ListPodSandbox"
	if err := send(version, "\x0a\x05h\xc3\xa4ll"); err != nil {
		t.Error("good text:", err)
	}
	expect(t, send(version, "\x0a\x03a\xffb"), codes.InvalidArgument, "field version: the string is not valid UTF-8 at byte 1")
	expect(t, send(version, "\x0a\x03a\x00b"), codes.InvalidArgument, "field version: there is a NUL at byte 1")
	// filter.label_selector["k"] = "\xff"
	expect(t, send(list, "\x0a\x08\x1a\x06\x0a\x01k\x12\x01\xff"), codes.InvalidArgument, "field filter.label_selector.value")
	expect(t, send(version, "\x0a\x7fab"), codes.Internal, "not valid protobuf")
	expect(t, send(version, "\xff"), codes.Internal, "not valid protobuf")
	s.quiet(c)
}

func TestParkedCalls(t *testing.T) {
	for _, many := range []int{300, 2000} {
		s := start(t)
		c := s.dial()
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		for range many {
			group.Add(1)
			go func() {
				defer group.Done()
				if _, err := c.say(ctx, "park"); status.Code(err) != codes.Canceled {
					t.Errorf("parked: %v", err)
				}
			}()
		}
		s.eventually("parked", func(n counts) bool { return n.parked == many })
		var took []time.Duration
		for range 50 {
			began := time.Now()
			if _, err := c.say(within(t, time.Minute), "x"); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("Version beside %d parked calls: median %v, worst %v", many, took[25], took[49])
		if took[25] > 10*time.Millisecond {
			t.Errorf("Version took %v beside %d parked calls", took[25], many)
		}
		cancel()
		group.Wait()
		s.eventually("cancelled", func(n counts) bool { return n.cancelled == many && n.tasks == 1 })
		s.quiet(c)
		s.stop()
	}
}

// slowConn reads a little, then waits.
type slowConn struct{ net.Conn }

func (c slowConn) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return c.Conn.Read(p[:min(len(p), 256*1024)])
}

func TestLargeRepliesToSlowReader(t *testing.T) {
	const size = 80 << 20
	s := start(t)
	other := s.dial()
	before := other.counts(t)
	c := s.dial(grpc.WithReadBufferSize(256*1024), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.path)
		return slowConn{conn}, err
	}))
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			got, err := c.say(within(t, 2*time.Minute), "large %d", size)
			if err != nil || len(got) != size {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		}()
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	var took []time.Duration
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(20 * time.Millisecond):
			began := time.Now()
			if _, err := other.say(within(t, time.Minute), "x"); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	t.Logf("%d calls of another client meanwhile: median %v, worst %v", len(took), took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > 20*time.Millisecond {
		t.Errorf("others had to wait: %v", took[len(took)/2])
	}
	c.conn.Close()
	s.eventually("memory", func(n counts) bool { return n.rss < before.rss+64*1024 || sanitized() })
}

// sanitized: a sanitizer keeps freed memory in quarantine.
func sanitized() bool {
	data, err := os.ReadFile(os.Getenv("GRPC_TEST_SERVER"))
	return err == nil && strings.Contains(string(data), "__asan_init")
}

func TestLargeRequests(t *testing.T) {
	s := start(t)
	c := s.dial()
	before := c.counts(t)
	pull := func(size int) (string, error) {
		r, err := c.images.PullImage(within(t, time.Minute), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: strings.Repeat("i", size)}})
		return r.GetImageRef(), err
	}
	largest := 16<<20 - 10
	for range 3 {
		if got, err := pull(largest); err != nil || got != "16777206" {
			t.Errorf("the largest request: %q, %v", got, err)
		}
	}
	for _, size := range []int{16<<20 + 1, 17 << 20, 40 << 20, 100 << 20} {
		ctx, cancel := context.WithCancel(context.Background())
		parked := make(chan error, 1)
		go func() { _, err := c.say(ctx, "park"); parked <- err }()
		s.eventually("parked", func(n counts) bool { return n.parked == 1 })
		_, err := pull(size)
		expect(t, err, codes.ResourceExhausted, "larger than the limit")
		select {
		case err := <-parked:
			t.Errorf("a call beside it ended: %v", err)
		default:
		}
		cancel()
		<-parked
	}
	if after := c.counts(t); after.connections != before.connections {
		t.Errorf("connections: %+v, then %+v", before, after)
	}
	s.eventually("memory", func(n counts) bool { return n.rss < before.rss+48*1024 || sanitized() })
	s.quiet(c)
}

// 16 MiB of empty submessages would unpack to over 1 GiB.
func TestArenaCap(t *testing.T) {
	s := start(t)
	c := s.dial()
	in, out := []byte(strings.Repeat("\x0a\x00", 8<<20)), []byte{}
	// ListPodSandboxRequest.filter is merged; repeated messages are in AuthConfig-less PullImageRequest's
	// sandbox_config.devices: 3 = sandbox_config, which is a message of many fields
	in = slices.Concat([]byte{0x1a, 0x80, 0x80, 0x80, 0x07}, []byte(strings.Repeat("\x2a\x00", 7<<20)))
	err := c.conn.Invoke(within(t, time.Minute), "/runtime.v1.ImageService/PullImage", &in, &out, grpc.ForceCodec(raw{}))
	expect(t, err, codes.ResourceExhausted, "when it is unpacked")
	s.eventually("memory", func(n counts) bool { return n.rss < 200*1024 || sanitized() })
	s.quiet(c)
}

func TestDeadlines(t *testing.T) {
	s := start(t)
	c := s.dial()
	began := time.Now()
	_, err := c.say(within(t, 50*time.Millisecond), "park")
	expect(t, err, codes.DeadlineExceeded, "")
	if took := time.Since(began); took > time.Second {
		t.Errorf("a deadline of 50 ms took %v", took)
	}
	s.eventually("ended", func(n counts) bool { return n.tasks == 1 && n.parked == 0 })
	got, err := c.say(within(t, 10*time.Second), "sleep 20")
	if err != nil || got != "slept" {
		t.Errorf("%q, %v", got, err)
	}
	// a handler that outlives its client: the reply goes nowhere
	_, err = c.say(within(t, 20*time.Millisecond), "shielded 200")
	expect(t, err, codes.DeadlineExceeded, "")
	// a client is answered in time to learn why
	_, err = c.say(within(t, time.Second), "shielded 1500")
	expect(t, err, codes.DeadlineExceeded, "the deadline passed, but it goes on")
	s.quiet(c)
}

func TestClientGoesAway(t *testing.T) {
	s := start(t)
	for range 20 {
		c := s.dial()
		for range 10 {
			go c.say(context.Background(), "park")
		}
		go c.say(context.Background(), "large %d", 30<<20)
		s.eventually("parked", func(n counts) bool { return n.parked == 10 })
		c.conn.Close()
		s.eventually("gone", func(n counts) bool { return n.parked == 0 })
	}
	s.eventually("cancelled", func(n counts) bool { return n.cancelled == 200 })
	s.quiet()
}

func TestManyClients(t *testing.T) {
	s := start(t)
	before := s.counts()
	var group sync.WaitGroup
	for range 200 {
		group.Add(1)
		go func() {
			defer group.Done()
			c := s.dial()
			defer c.conn.Close()
			for range 10 {
				if got, err := c.say(within(t, time.Minute), "x"); err != nil || got != "crisp" {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		}()
	}
	group.Wait()
	s.quiet()
	if after := s.counts(); after.fds != before.fds {
		t.Errorf("descriptors: %d, then %d", before.fds, after.fds)
	}
}

func TestStreaming(t *testing.T) {
	s := start(t)
	// windows that don't grow: a client that takes in the whole stream at once is never slow
	c := s.dial(grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	for _, slow := range []bool{false, true} {
		stream, err := c.GetContainerEvents(within(t, time.Minute), &cri.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if slow {
			time.Sleep(200 * time.Millisecond)
			if n := s.counts(); n.calls != 2 {
				t.Errorf("the server did not wait for its client: %+v", n)
			}
		}
		n := int64(0)
		for ; ; n++ {
			e, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.CreatedAt != n {
				t.Fatalf("event %d is %d", n, e.CreatedAt)
			}
		}
		if n != 10000 {
			t.Errorf("%d events", n)
		}
	}
	// left alone in the middle
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Error(err)
		}
		cancel()
	}
	s.quiet(c)
}

func TestKeepalive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 11 s")
	}
	s := start(t)
	c := s.dial(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}))
	got, err := c.say(within(t, time.Minute), "sleep 12000")
	if err != nil || got != "slept" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestGoaway(t *testing.T) {
	s := start(t)
	c := s.dial()
	if _, err := c.say(within(t, time.Minute), "x"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, words := range []string{"sleep 500", "shielded 500"} {
		go func() {
			_, err := c.say(within(t, time.Minute), "%s", words)
			done <- err
		}()
	}
	time.Sleep(100 * time.Millisecond)
	s.cmd.Process.Signal(syscall.SIGTERM)
	for range 2 {
		if err := <-done; err != nil {
			t.Error("a call in flight:", err)
		}
	}
	if conn, err := net.Dial("unix", s.path); err == nil {
		t.Error("somebody still accepts")
		conn.Close()
	}
}

// At the limit of descriptors, clients are turned away at once, and the server does not spin.
func TestDescriptorLimit(t *testing.T) {
	s := start(t, "prlimit", "--nofile=40")
	first := s.dial()
	before := first.counts(t)
	var conns []net.Conn
	refused := 0
	for range 100 {
		conn, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(60 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err == io.EOF {
			refused++
		}
	}
	if refused < 60 {
		t.Errorf("only %d of 100 connections were refused", refused)
	}
	cpu := cpuTime(t, s.cmd.Process.Pid)
	time.Sleep(500 * time.Millisecond)
	if spent := cpuTime(t, s.cmd.Process.Pid) - cpu; spent > 100*time.Millisecond {
		t.Errorf("the server used %v of CPU in 500 ms", spent)
	}
	for _, conn := range conns {
		conn.Close()
	}
	first.counts(t)
	s.eventually("descriptors", func(n counts) bool { return n.fds <= before.fds+1 })
}

// h2o times its writes by the wall clock; replies must not wait for it to catch up.
func TestClockSetBack(t *testing.T) {
	s := start(t)
	c := s.dial()
	for range 3 {
		done := make(chan error, 1)
		go func() { _, err := c.say(within(t, 10*time.Second), "sleep 200"); done <- err }()
		time.Sleep(50 * time.Millisecond)
		other := s.dial()
		if got, err := other.say(within(t, 10*time.Second), "clock 3600"); err != nil || got != "set back" {
			t.Fatal(got, err)
		}
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("the reply of a call beside it: %v after %v", err, time.Since(began))
		}
		if _, err := other.say(within(t, 10*time.Second), "x"); err != nil {
			t.Error(err)
		}
		other.conn.Close()
	}
	s.quiet(c)
}

// Nothing wakes the server up while a connection is idle and a call is parked.
func TestIdle(t *testing.T) {
	s := start(t)
	c := s.dial()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go c.say(ctx, "park")
	s.eventually("parked", func(n counts) bool { return n.parked == 1 })
	time.Sleep(700 * time.Millisecond) // what follows a closed connection, and a trim that was due
	before := switches(t, s.cmd.Process.Pid)
	time.Sleep(2 * time.Second)
	if n := switches(t, s.cmd.Process.Pid) - before; n > 2 {
		t.Errorf("the idle server woke up %d times in 2 s", n)
	}
}

// Other users may not connect, even where the file's mode would let them.
func TestPeerCredentials(t *testing.T) {
	if path := os.Getenv("GRPC_TEST_CONNECT"); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		t.Log("read:", err)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can take another uid")
	}
	s := start(t)
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(s.path)); err != nil || info.Mode().Perm() != 0700 {
		t.Errorf("its directory: %v, %v", info.Mode(), err)
	}
	os.Chmod(s.path, 0666)
	os.Chmod(filepath.Dir(s.path), 0755)
	os.Chmod(filepath.Dir(filepath.Dir(s.path)), 0755)
	self := filepath.Join(filepath.Dir(s.path), "test")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, data, 0755); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(self, "-test.v", "-test.run=^TestPeerCredentials$")
	other.Dir = "/"
	other.Env = []string{"GRPC_TEST_CONNECT=" + s.path}
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := other.CombinedOutput(); err != nil || !strings.Contains(string(out), "read: EOF") {
		t.Errorf("another user: %v: %s", err, out)
	}
	if !strings.Contains(s.stderr.String(), "with uid 65534") {
		t.Errorf("not logged: %s", s.tail())
	}
	s.quiet()
}

func TestSocketPaths(t *testing.T) {
	s := start(t)
	again := exec.Command(os.Getenv("GRPC_TEST_SERVER"), s.path)
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "another server listens on "+s.path) {
		t.Errorf("a second server: %v: %s", err, out)
	}
	s.quiet()
	// a killed one leaves its socket, which the next one replaces
	s.ended = true
	s.cmd.Process.Kill()
	s.cmd.Wait()
	if _, err := os.Stat(s.path); err != nil {
		t.Fatal(err)
	}
	next := exec.Command(os.Getenv("GRPC_TEST_SERVER"), s.path)
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	defer next.Wait()
	defer next.Process.Kill()
	replaced := false
	for end := time.Now().Add(10 * time.Second); !replaced && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", s.path); err == nil {
			conn.Close()
			replaced = true
		}
	}
	if !replaced {
		t.Error("the socket of a killed server was not replaced")
	}
	file := filepath.Join(filepath.Dir(s.path), "file")
	os.WriteFile(file, nil, 0600)
	for path, text := range map[string]string{file: "is not a socket", "/tmp/" + strings.Repeat("x", 120): "1 to 107 bytes", file + "/x": "Not a directory"} {
		if out, err := exec.Command(os.Getenv("GRPC_TEST_SERVER"), path).CombinedOutput(); err == nil || !strings.Contains(string(out), text) {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
}

func BenchmarkVersion(b *testing.B) {
	s := start(b)
	c := s.dial()
	for b.Loop() {
		if _, err := c.say(context.Background(), "x"); err != nil {
			b.Fatal(err)
		}
	}
}
