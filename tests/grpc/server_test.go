// SPDX-License-Identifier: Apache-2.0

// Package grpctest drives the C server grpc_test_server with a real gRPC client (client_test.go) and
// with hand-made frames (frames_test.go). Each test has a server of its own, which must end cleanly:
// with status 0, nothing on stderr from a sanitizer or from h2o, and no descriptor left.
package grpctest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type server struct {
	t      testing.TB
	path   string
	cmd    *exec.Cmd
	stderr lockedBuffer
	ended  bool
}

type lockedBuffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

// start runs a server; prefix is a command in front of it, such as prlimit.
func start(t testing.TB, prefix ...string) *server {
	t.Helper()
	program := os.Getenv("GRPC_TEST_SERVER")
	if program == "" {
		t.Fatal("GRPC_TEST_SERVER must name the grpc_test_server program; ctest -L grpc sets it")
	}
	// t.TempDir() is too long for a socket's path
	dir, err := os.MkdirTemp("", "grpc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{t: t, path: filepath.Join(dir, "sub", "s.sock")}
	args := append(prefix, program, s.path)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the server said %q, %v: %s", line, err, s.stderr.String())
	}
	return s
}

// stop ends the server and checks that it ended well.
func (s *server) stop() {
	if s.ended {
		return
	}
	s.ended = true
	s.cmd.Process.Signal(syscall.SIGINT)
	timer := time.AfterFunc(20*time.Second, func() { s.cmd.Process.Kill() })
	err := s.cmd.Wait()
	timer.Stop()
	if err != nil {
		s.t.Errorf("the server ended with %v: %s", err, s.tail())
	}
	for _, line := range strings.Split(s.stderr.String(), "\n") {
		if line != "" && !strings.HasPrefix(line, "time=") && !strings.Contains(line, "ASan doesn't fully support makecontext") {
			s.t.Errorf("on stderr: %s", s.tail())
			break
		}
	}
}

func (s *server) tail() string {
	text := s.stderr.String()
	if len(text) > 6000 {
		text = text[:3000] + "\n[…]\n" + text[len(text)-3000:]
	}
	return text
}

type client struct {
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	conn   *grpc.ClientConn
}

func (s *server) dial(options ...grpc.DialOption) *client {
	s.t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.path)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///"+s.path, options...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return &client{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), conn}
}

// say makes a Version call whose request holds the words.
func (c *client) say(ctx context.Context, format string, args ...any) (string, error) {
	r, err := c.Version(ctx, &cri.VersionRequest{Version: fmt.Sprintf(format, args...)})
	return r.GetRuntimeName(), err
}

type counts struct{ tasks, calls, connections, cancelled, parked, rss, fds int }

func (s *server) counts() counts {
	s.t.Helper()
	c := s.dial()
	defer c.conn.Close()
	return c.counts(s.t)
}

func (c *client) counts(t testing.TB) (n counts) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := c.say(ctx, "count")
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	if _, err := fmt.Sscanf(text, "tasks=%d calls=%d connections=%d cancelled=%d parked=%d rss=%d fds=%d",
		&n.tasks, &n.calls, &n.connections, &n.cancelled, &n.parked, &n.rss, &n.fds); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// eventually waits until the server's counts are as wanted.
func (s *server) eventually(what string, is func(counts) bool) {
	s.t.Helper()
	c := s.dial()
	defer c.conn.Close()
	var n counts
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n = c.counts(s.t); is(n) {
			return
		}
	}
	s.t.Errorf("%s: not within 10 s: %+v", what, n)
}

// quiet closes the clients and waits until nothing but the asking call is left.
func (s *server) quiet(clients ...*client) {
	s.t.Helper()
	for _, c := range clients {
		c.conn.Close()
	}
	s.eventually("one task, one call, one connection", func(n counts) bool {
		return n.tasks == 1 && n.calls == 1 && n.connections == 1
	})
}
