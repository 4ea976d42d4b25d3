// SPDX-License-Identifier: Apache-2.0

package grpctest

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const versionPath = "/runtime.v1.RuntimeService/Version"

// peer is a client that sends what it is told to, right or wrong.
type peer struct {
	*http2.Framer
	t     testing.TB
	conn  net.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

func (s *server) raw() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("unix", s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// peer connects, and sends the preface and settings.
func (s *server) peer(settings ...http2.Setting) *peer {
	s.t.Helper()
	p := &peer{t: s.t, conn: s.raw()}
	p.Framer = http2.NewFramer(p.conn, p.conn)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	io.WriteString(p.conn, http2.ClientPreface)
	p.WriteSettings(settings...)
	return p
}

func (p *peer) encode(path string, fields ...string) []byte {
	p.block.Reset()
	all := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, fields...)
	for i := 0; i < len(all); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

func (p *peer) headers(id uint32, path string, fields ...string) {
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(path, fields...), EndHeaders: true})
}

func message(words string) []byte {
	body := append([]byte{0x0a, byte(len(words))}, words...)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// call sends a whole Version request.
func (p *peer) call(id uint32, format string, args ...any) {
	p.headers(id, versionPath)
	p.WriteData(id, true, message(fmt.Sprintf(format, args...)))
}

// result reads up to the end of stream id: all its header fields and the bytes of its data.
func (p *peer) result(id uint32) (fields map[string]string, data []byte) {
	p.t.Helper()
	fields = map[string]string{}
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			p.t.Fatalf("stream %d: %v", id, err)
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				fields[field.Name] = field.Value
			}
			if f.StreamEnded() {
				return
			}
		case *http2.DataFrame:
			data = append(data, f.Data()...)
		case *http2.RSTStreamFrame:
			fields["reset"] = f.ErrCode.String()
			return
		}
	}
}

// ends reads until the server closes the connection.
func (p *peer) ends() (code http2.ErrCode) {
	p.t.Helper()
	for {
		frame, err := p.ReadFrame()
		if e, ok := err.(net.Error); ok && e.Timeout() {
			p.t.Fatal("the connection did not end")
		}
		if err != nil {
			return
		}
		if f, ok := frame.(*http2.GoAwayFrame); ok {
			code = f.ErrCode
		}
	}
}

// bystander parks a call on a connection of its own, and reports what became of it.
func (s *server) bystander() (check func()) {
	c := s.dial()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { _, err := c.say(ctx, "park"); done <- err }()
	s.eventually("parked", func(n counts) bool { return n.parked > 0 })
	return func() {
		s.t.Helper()
		select {
		case err := <-done:
			s.t.Fatalf("the call on another connection ended: %v", err)
		default:
		}
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			s.t.Errorf("the call on another connection: %v", err)
		}
		s.quiet(c)
	}
}

func TestRawCall(t *testing.T) {
	s := start(t)
	p := s.peer()
	p.call(1, "x")
	fields, data := p.result(1)
	if fields[":status"] != "200" || fields["grpc-status"] != "0" || fields["content-type"] != "application/grpc" ||
		!strings.Contains(string(data), "crisp") {
		t.Errorf("%v %q", fields, data)
	}
	// a path of its own without :authority, and a call without any data frame
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: p.encode(versionPath), EndHeaders: true, EndStream: true})
	if fields, _ = p.result(3); fields["grpc-status"] != "13" || !strings.Contains(fields["grpc-message"], "no message") {
		t.Errorf("%v", fields)
	}
	p.conn.Close()
	s.quiet()
}

func TestBadRequests(t *testing.T) {
	s := start(t)
	p := s.peer()
	id := uint32(1)
	try := func(name string, want map[string]string, path string, body string, fields ...string) {
		t.Helper()
		p.headers(id, path, fields...)
		p.WriteData(id, true, []byte(body))
		got, _ := p.result(id)
		for key, value := range want {
			if !strings.Contains(got[key], value) || value == "" && got[key] != "" {
				t.Errorf("%s: %s is %q, not %q", name, key, got[key], value)
			}
		}
		id += 2
	}
	m := string(message("x"))
	try("two messages", map[string]string{"grpc-status": "13", "grpc-message": "more than one"}, versionPath, m+m)
	try("short prefix", map[string]string{"grpc-status": "13", "grpc-message": "prefix"}, versionPath, "\x00\x00")
	try("cut message", map[string]string{"grpc-status": "13", "grpc-message": "cut"}, versionPath, m[:len(m)-1])
	try("announced size", map[string]string{"grpc-status": "8", "grpc-message": "larger"}, versionPath, "\x00\xff\xff\xff\xffab")
	try("compressed", map[string]string{"grpc-status": "12", "grpc-message": "compressed"}, versionPath, "\x01"+m[1:], "grpc-encoding", "gzip")
	try("bad flags", map[string]string{"grpc-status": "13"}, versionPath, "\x80"+m[1:])
	try("malformed timeout", map[string]string{"grpc-status": "13", "grpc-message": "grpc-timeout 1x"}, versionPath, m, "grpc-timeout", "1x")
	try("timeout of 0", map[string]string{"grpc-status": "4"}, versionPath, string(message("park")), "grpc-timeout", "0n")
	try("timeout in µs", map[string]string{"grpc-status": "4"}, versionPath, string(message("park")), "grpc-timeout", "2000u")
	try("long timeout", map[string]string{"grpc-status": "0"}, versionPath, m, "grpc-timeout", "99999999H")
	try("no slash", map[string]string{}, "Version", m)
	try("odd path", map[string]string{"grpc-status": "12", "grpc-message": "/%C3%A4%25"}, "/ä%", m)
	try("two slashes", map[string]string{"grpc-status": "12"}, "/"+versionPath, m)
	try("query", map[string]string{"grpc-status": "12"}, versionPath+"?x", m)
	try("long path", map[string]string{"grpc-status": "12"}, "/"+strings.Repeat("p", 5000), m)

	request := func(method, contentType string) map[string]string {
		t.Helper()
		p.block.Reset()
		for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":path", versionPath}, {"content-type", contentType}} {
			p.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: true})
		got, _ := p.result(id)
		id += 2
		return got
	}
	if got := request("POST", "text/plain"); got[":status"] != "415" || got["grpc-status"] != "3" || !strings.Contains(got["grpc-message"], "text/plain") {
		t.Errorf("text/plain: %v", got)
	}
	if got := request("GET", "application/grpc"); got[":status"] != "405" {
		t.Errorf("GET: %v", got)
	}
	// and the connection is as good as new
	p.call(id, "x")
	if fields, _ := p.result(id); fields["grpc-status"] != "0" {
		t.Errorf("%v", fields)
	}
	p.conn.Close()
	s.quiet()
}

func TestOtherProtocols(t *testing.T) {
	s := start(t)
	check := s.bystander()
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", "x", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"} {
		conn := s.raw()
		io.WriteString(conn, text)
		answer, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 505 ") || !strings.Contains(string(answer), "gRPC") {
			t.Errorf("%q was answered by %q", text, answer)
		}
	}
	// half a preface and the end
	conn := s.raw()
	io.WriteString(conn, http2.ClientPreface[:10])
	conn.Close()
	check()
}

func TestPingAndSettings(t *testing.T) {
	s := start(t)
	p := s.peer()
	p.WritePing(false, [8]byte{1, 2, 3, 4, 5, 6, 7, 8})
	acks, most, pinged := 0, uint32(0), false
	for !pinged || acks < 1 || most < 2000 {
		frame, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("pinged %v, %d acks, %d streams: %v", pinged, acks, most, err)
		}
		switch f := frame.(type) {
		case *http2.PingFrame:
			pinged = f.IsAck() && f.Data == [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
		case *http2.SettingsFrame:
			if f.IsAck() {
				acks++
			} else if value, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				most = value
			}
		}
	}
	// unknown frames, priorities and the client's GOAWAY change nothing
	p.WriteRawFrame(0x42, 0xff, 7, []byte("what"))
	for i := range uint32(2000) {
		p.WritePriority(i*2+1, http2.PriorityParam{StreamDep: i * 2, Weight: 5, Exclusive: true})
	}
	p.WriteGoAway(0, http2.ErrCodeNo, nil)
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: 4001, BlockFragment: p.encode(versionPath), EndHeaders: true,
		Priority: http2.PriorityParam{StreamDep: 4001, Weight: 1, Exclusive: true}})
	p.WriteDataPadded(4001, true, message("x"), make([]byte, 100))
	if fields, _ := p.result(4001); fields["grpc-status"] != "0" {
		t.Errorf("%v", fields)
	}
	p.conn.Close()
	s.quiet()
}

// Replies through windows of a few bytes, opened one at a time.
func TestTinyWindows(t *testing.T) {
	s := start(t)
	for _, step := range []uint32{1, 7, 100} {
		for _, size := range []int{0, 1, 50, 300} {
			p := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.call(1, "large %d", size)
			p.call(3, "fail notfound")
			if fields, _ := p.result(3); fields["grpc-status"] != "5" {
				t.Errorf("an error needs no window: %v", fields)
			}
			done := make(chan struct{})
			go func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(100 * time.Microsecond):
						p.WriteWindowUpdate(1, step)
					}
				}
			}()
			fields, data := p.result(1)
			close(done)
			if fields["grpc-status"] != "0" || bytes.Count(data, []byte("x")) != size {
				t.Errorf("step %d, size %d: %v, %d bytes", step, size, fields, len(data))
			}
			p.conn.Close()
		}
	}
	s.quiet()
}

// A reset in each state of a stream; the connection goes on.
func TestResetAtEveryStage(t *testing.T) {
	s := start(t)
	check := s.bystander()
	stages := map[string]func(p *peer){
		"after headers":      func(p *peer) { p.headers(1, versionPath) },
		"within the body":    func(p *peer) { p.headers(1, versionPath); p.WriteData(1, false, message("x")[:3]) },
		"at once":            func(p *peer) { p.call(1, "park") },
		"while parked":       func(p *peer) { p.call(1, "park"); time.Sleep(20 * time.Millisecond) },
		"unknown method":     func(p *peer) { p.headers(1, "/x") },
		"while replying":     func(p *peer) { p.call(1, "large 1000000"); time.Sleep(20 * time.Millisecond) },
		"after the reply":    func(p *peer) { p.call(1, "x"); p.result(1) },
		"oversize":           func(p *peer) { oversize(p, 1) },
		"shielded":           func(p *peer) { p.call(1, "shielded 100") },
		"trailers received":  func(p *peer) { p.headers(1, versionPath); trailers(p, 1) },
		"streaming":          func(p *peer) { events(p, 1); time.Sleep(20 * time.Millisecond) },
		"streaming, at once": func(p *peer) { events(p, 1) },
	}
	for _, window := range []uint32{0, 1000, 1 << 30} {
		for name, stage := range stages {
			p := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
			if window == 0 && (name == "after the reply") {
				p.WriteWindowUpdate(1, 1000)
				p.conn.Close()
				continue
			}
			p.WriteWindowUpdate(0, 1<<24)
			stage(p)
			for range 3 {
				p.WriteRSTStream(1, http2.ErrCodeCancel)
				p.WriteWindowUpdate(1, 5000)
			}
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			p.call(3, "x")
			if fields, data := p.result(3); fields["grpc-status"] != "0" || len(data) == 0 {
				t.Errorf("%s, window %d: %v", name, window, fields)
			}
			p.conn.Close()
		}
	}
	check()
}

func events(p *peer, id uint32) {
	p.headers(id, "/runtime.v1.RuntimeService/GetContainerEvents")
	p.WriteData(id, true, []byte{0, 0, 0, 0, 0})
}

func trailers(p *peer, id uint32) {
	p.block.Reset()
	p.enc.WriteField(hpack.HeaderField{Name: "some", Value: "trailer"})
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: true})
}

func oversize(p *peer, id uint32) {
	p.headers(id, versionPath)
	frame := make([]byte, 16384)
	for range 1030 {
		p.WriteData(id, false, frame)
	}
}

// The reader does not read, so that what the server writes stays in flight, and streams that ended
// wait: frames for those must not confuse h2o.
func TestStuckReader(t *testing.T) {
	s := start(t)
	check := s.bystander()
	for _, last := range []func(p *peer){
		func(p *peer) { p.WriteRSTStream(3, http2.ErrCodeCancel); p.WriteWindowUpdate(3, 1000) },
		func(p *peer) { p.WriteWindowUpdate(3, 1000); p.WriteWindowUpdate(3, 1000) },
		func(p *peer) { p.WriteWindowUpdate(3, 1<<31-1); p.WriteWindowUpdate(3, 1<<31-1) },
		func(p *peer) {
			p.WriteRSTStream(3, http2.ErrCodeCancel)
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5})
		},
		func(p *peer) { p.WriteData(3, true, []byte("again")); p.WriteWindowUpdate(3, 1000) },
		func(p *peer) {
			p.WriteRawFrame(http2.FrameWindowUpdate, 0, 3, []byte{0, 0, 0, 0})
			p.WriteWindowUpdate(3, 1000)
		},
		func(p *peer) { p.WriteRSTStream(1, http2.ErrCodeCancel); p.WriteWindowUpdate(1, 1000) },
		func(p *peer) { p.WriteRSTStream(5, http2.ErrCodeCancel); p.WriteWindowUpdate(5, 1000) },
		func(p *peer) { p.conn.(*net.UnixConn).CloseWrite() },
		func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 0, []byte("wrong size")) },
	} {
		for _, words := range []string{"fail notfound", "x", "park", "large 20"} {
			p := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8 << 20})
			p.WriteWindowUpdate(0, 1<<30)
			p.call(1, "large %d", 16<<20)
			for {
				// from here on the server has more to write than the socket takes
				if frame, err := p.ReadFrame(); err != nil || frame.Header().Type == http2.FrameData {
					break
				}
			}
			time.Sleep(10 * time.Millisecond)
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.call(3, "%s", words)
			events(p, 5)
			time.Sleep(10 * time.Millisecond)
			last(p)
			time.Sleep(10 * time.Millisecond)
			if words == "x" {
				p.conn.Close()
				continue
			}
			// drained, it has to go on or to end
			go func() {
				p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 26})
				p.call(7, "x")
			}()
			for {
				frame, err := p.ReadFrame()
				if e, ok := err.(net.Error); ok && e.Timeout() {
					t.Fatalf("%s: neither an answer nor an end", words)
				}
				if err != nil || frame.Header().StreamID == 7 {
					break
				}
			}
			p.conn.Close()
		}
	}
	check()
}

// Each of these ends its connection, and only that.
func TestMalformedFrames(t *testing.T) {
	s := start(t)
	check := s.bystander()
	for name, send := range map[string]func(p *peer){
		"frame too long":         func(p *peer) { p.conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1}) },
		"ping size":              func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 0, []byte("123")) },
		"ping on a stream":       func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 3, make([]byte, 8)) },
		"settings size":          func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)) },
		"settings on a stream":   func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 0, 3, nil) },
		"settings ack with data": func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 1, 0, make([]byte, 6)) },
		"settings window":        func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) },
		"settings frame size":    func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) },
		"goaway size":            func(p *peer) { p.WriteRawFrame(http2.FrameGoAway, 0, 0, make([]byte, 3)) },
		"push promise":           func(p *peer) { p.WriteRawFrame(http2.FramePushPromise, 4, 3, make([]byte, 8)) },
		"lone continuation":      func(p *peer) { p.WriteContinuation(3, true, nil) },
		"data on stream 0":       func(p *peer) { p.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) },
		"data on idle stream":    func(p *peer) { p.WriteRawFrame(http2.FrameData, 0, 99, []byte("x")) },
		"padding too long":       func(p *peer) { p.headers(3, versionPath); p.WriteRawFrame(http2.FrameData, 8, 3, []byte{9, 1}) },
		"padding missing":        func(p *peer) { p.headers(3, versionPath); p.WriteRawFrame(http2.FrameData, 8, 3, nil) },
		"headers on stream 0":    func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 4, 0, p.encode(versionPath)) },
		"headers on stream 2":    func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 4, 2, p.encode(versionPath)) },
		"headers padding":        func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 4|8, 3, []byte{200, 1}) },
		"headers priority":       func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 4|0x20, 3, []byte{0, 0}) },
		"headers again":          func(p *peer) { p.call(3, "park"); p.headers(3, versionPath) },
		"headers downwards":      func(p *peer) { p.call(5, "park"); p.headers(3, versionPath) },
		"trailers without end":   func(p *peer) { p.headers(3, versionPath); p.headers(3, versionPath) },
		"hpack garbage":          func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 5, 3, []byte("\xff\xff\xff\xff\xff\xff\xff")) },
		"hpack index":            func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 5, 3, []byte{0xfe}) },
		"hpack cut":              func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 5, 3, p.encode(versionPath, "fresh", "value")[:12]) },
		"hpack huffman": func(p *peer) {
			p.WriteRawFrame(http2.FrameHeaders, 5, 3, []byte{0x00, 0x84, 0xff, 0xff, 0xff, 0xff, 0x01, 'a'})
		},
		"hpack table size": func(p *peer) { p.WriteRawFrame(http2.FrameHeaders, 5, 3, []byte{0x3f, 0xff, 0xff, 0xff, 0x7f}) },
		"continuation of other": func(p *peer) {
			p.WriteRawFrame(http2.FrameHeaders, 0, 3, p.encode(versionPath))
			p.WriteContinuation(5, true, nil)
		},
		"ping in a block": func(p *peer) {
			p.WriteRawFrame(http2.FrameHeaders, 0, 3, p.encode(versionPath))
			p.WritePing(false, [8]byte{})
		},
		"unknown in a block": func(p *peer) {
			p.WriteRawFrame(http2.FrameHeaders, 0, 3, p.encode(versionPath))
			p.WriteRawFrame(77, 0, 3, nil)
		},
		"reset of idle":    func(p *peer) { p.WriteRSTStream(99, http2.ErrCodeCancel) },
		"reset of 0":       func(p *peer) { p.WriteRawFrame(http2.FrameRSTStream, 0, 0, make([]byte, 4)) },
		"reset size":       func(p *peer) { p.WriteRawFrame(http2.FrameRSTStream, 0, 3, make([]byte, 3)) },
		"window of idle":   func(p *peer) { p.WriteWindowUpdate(99, 5) },
		"window size":      func(p *peer) { p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 3)) },
		"window of 0":      func(p *peer) { p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4)) },
		"window too large": func(p *peer) { p.WriteWindowUpdate(0, 1<<31-1); p.WriteWindowUpdate(0, 1<<31-1) },
		"priority size":    func(p *peer) { p.WriteRawFrame(http2.FramePriority, 0, 3, make([]byte, 4)) },
	} {
		p := s.peer()
		p.call(1, "park")
		send(p)
		p.conn.SetDeadline(time.Now().Add(5 * time.Second))
		done := make(chan struct{})
		go func() { p.ends(); close(done) }()
		select {
		case <-done:
		case <-time.After(6 * time.Second):
			t.Fatalf("%s: the connection did not end", name)
		}
		p.conn.Close()
	}
	check()
}

// The same as a first stream, where h2o is in other states.
func TestStreamErrors(t *testing.T) {
	s := start(t)
	check := s.bystander()
	for name, send := range map[string]func(p *peer){
		"window of 0":        func(p *peer) { p.call(1, "park"); p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)) },
		"window too large":   func(p *peer) { p.call(1, "park"); p.WriteWindowUpdate(1, 1<<31-1) },
		"data after the end": func(p *peer) { p.call(1, "park"); p.WriteData(1, true, []byte("more")) },
		"content-length":     func(p *peer) { p.headers(1, versionPath, "content-length", "3"); p.WriteData(1, true, []byte("12345")) },
		"missing pseudo": func(p *peer) {
			p.block.Reset()
			p.enc.WriteField(hpack.HeaderField{Name: "a", Value: "b"})
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block.Bytes(), EndHeaders: true})
		},
		"bad header character": func(p *peer) { p.headers(1, versionPath, "na\x01me", "va\x01lue") },
	} {
		p := s.peer()
		send(p)
		p.call(3, "x")
		if fields, _ := p.result(3); fields["grpc-status"] != "0" {
			t.Errorf("%s: the next stream: %v", name, fields)
		}
		p.conn.Close()
	}
	check()
}

func TestHugeHeaders(t *testing.T) {
	s := start(t)
	check := s.bystander()
	send := func(block []byte) {
		p := s.peer()
		first := true
		for len(block) > 0 || first {
			n := min(len(block), 16000)
			if first {
				p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:n], EndHeaders: n == len(block), EndStream: true})
			} else if p.WriteContinuation(1, n == len(block), block[:n]) != nil {
				break
			}
			first, block = false, block[n:]
		}
		p.conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		for {
			if _, err := p.ReadFrame(); err != nil {
				break
			}
		}
		p.conn.Close()
	}
	p := s.peer()
	send(p.encode(versionPath, "long", strings.Repeat("v", 100<<10)))
	send(p.encode(versionPath, "long", strings.Repeat("v", 1<<20)))
	send(p.encode(versionPath, strings.Repeat("n", 100<<10), "v"))
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint("name", i), "value")
	}
	send(p.encode(versionPath, many...))
	// a bomb: one indexed field, again and again
	send(append(p.encode(versionPath, "k", strings.Repeat("v", 4000)), bytes.Repeat([]byte{0xbe}, 50000)...))
	p.conn.Close()
	check()
}

// Floods from a client that reads nothing: its connection may stall or end, memory stays small, others are served.
func TestFloods(t *testing.T) {
	s := start(t)
	check := s.bystander()
	other := s.dial()
	before := other.counts(t)
	for name, write := range map[string]func(p *peer, i int) error{
		"settings": func(p *peer, i int) error {
			return p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 1000)})
		},
		"ping": func(p *peer, i int) error { return p.WritePing(false, [8]byte{}) },
		"reset": func(p *peer, i int) error {
			p.call(uint32(i*2+1), "park")
			return p.WriteRSTStream(uint32(i*2+1), http2.ErrCodeCancel)
		},
		"bad calls": func(p *peer, i int) error {
			p.headers(uint32(i*2+1), "/x")
			return p.WriteData(uint32(i*2+1), true, nil)
		},
		"closed": func(p *peer, i int) error {
			if i == 0 {
				p.call(1, "x")
			}
			return p.WriteData(1, false, []byte("x"))
		},
		"empty data": func(p *peer, i int) error {
			if i == 0 {
				p.headers(1, versionPath)
			}
			return p.WriteData(1, false, nil)
		},
		"continuation": func(p *peer, i int) error {
			if i == 0 {
				p.WriteRawFrame(http2.FrameHeaders, 0, 1, p.encode(versionPath))
			}
			return p.WriteContinuation(1, false, nil)
		},
		"full continuation": func(p *peer, i int) error {
			if i == 0 {
				p.WriteRawFrame(http2.FrameHeaders, 0, 1, p.encode(versionPath))
			}
			return p.WriteContinuation(1, false, make([]byte, 16000))
		},
	} {
		p := s.peer()
		p.conn.SetWriteDeadline(time.Now().Add(700 * time.Millisecond))
		sent := 0
		for ; sent < 200000; sent++ {
			if write(p, sent) != nil {
				break
			}
		}
		began := time.Now()
		n := other.counts(t)
		took := time.Since(began)
		t.Logf("%s: %d frames, another call took %v, %d KiB", name, sent, took, n.rss-before.rss)
		if n.rss > before.rss+100*1024 && !sanitized() || n.rss > before.rss+1024*1024 {
			t.Errorf("%s: %d KiB, then %d", name, before.rss, n.rss)
		}
		p.conn.Close()
		s.eventually(name, func(n counts) bool { return n.connections <= 3 })
	}
	other.conn.Close()
	check()
}

// More bodies on their way than h2o would have streams.
func TestManyUploads(t *testing.T) {
	s := start(t)
	p := s.peer()
	for i := range uint32(1000) {
		p.headers(i*2+1, versionPath)
	}
	for i := range uint32(1000) {
		p.WriteData(i*2+1, true, message("x"))
	}
	good := 0
	for good < 1000 {
		frame, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("after %d: %v", good, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() && f.Fields[0].Value == "0" {
				good++
			}
		case *http2.RSTStreamFrame:
			t.Fatalf("stream %d was reset: %v", f.StreamID, f.ErrCode)
		}
	}
	p.conn.Close()
	s.quiet()
}

// So many streams a connection, so many calls in all; what is more is told so.
func TestCallLimits(t *testing.T) {
	s := start(t)
	c := s.dial()
	before := c.counts(t)
	p := s.peer()
	last := uint32(2*5000 + 1)
	for id := uint32(1); id <= last; id += 2 {
		p.call(id, "park")
	}
	if fields, _ := p.result(last); fields["reset"] != "REFUSED_STREAM" {
		t.Errorf("stream 5,001 of a connection: %v", fields)
	}
	s.eventually("parked", func(n counts) bool { return n.parked == 5000 })
	if n := c.counts(t); !sanitized() {
		t.Logf("%.1f KiB a parked call", float64(n.rss-before.rss)/5000)
	}
	q := s.peer()
	for id := uint32(1); id < 2*4990; id += 2 {
		q.call(id, "park")
	}
	s.eventually("parked", func(n counts) bool { return n.parked == 9990 })
	r := s.peer()
	for id := uint32(1); id <= 41; id += 2 {
		r.call(id, "park")
	}
	if fields, _ := r.result(41); fields["grpc-status"] != "8" || !strings.Contains(fields["grpc-message"], "10000 calls in flight") {
		t.Errorf("call 10,011: %v", fields)
	}
	p.conn.Close()
	q.conn.Close()
	r.conn.Close()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := c.say(context.Background(), "x"); err == nil {
			break
		}
	}
	s.quiet(c)
}

// The end of the server while clients are in every state.
func TestStopBesideClients(t *testing.T) {
	s := start(t)
	c := s.dial()
	go c.say(context.Background(), "park")
	go c.say(context.Background(), "shielded 300")
	go c.say(context.Background(), "large %d", 50<<20)
	stuck := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	stuck.WriteWindowUpdate(0, 1<<30)
	stuck.call(1, "large %d", 20<<20)
	events(stuck, 3)
	stuck.headers(5, versionPath)
	stuck.WriteRawFrame(http2.FrameHeaders, 0, 7, stuck.encode(versionPath))
	closing := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	closing.WriteWindowUpdate(0, 1<<30)
	closing.call(1, "large %d", 20<<20)
	closing.WriteRawFrame(http2.FramePing, 0, 0, []byte("wrong size"))
	s.raw()
	io.WriteString(s.raw(), http2.ClientPreface[:10])
	s.eventually("parked", func(n counts) bool { return n.parked == 1 && n.connections >= 5 })
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.stop()
}

// Random frames behind a good start, reproducible by the seed. Most keep the rules that end a connection when they are
// broken, so that the rest gets somewhere.
func TestRandomFrames(t *testing.T) {
	s := start(t)
	check := s.bystander()
	connections := *randomConnections
	answers := 0
	for seed := range connections {
		answers += s.randomFrames(rand.New(rand.NewSource(seed)))
		if seed%50 == 49 {
			s.eventually("random frames", func(n counts) bool { return n.tasks <= 2 && n.connections <= 2 })
		}
	}
	t.Logf("%d frames came back", answers)
	check()
}

var randomConnections = flag.Int64("connections", 400, "how many connections TestRandomFrames makes")

func (s *server) randomFrames(random *rand.Rand) (answers int) {
	windows := []uint32{0, 10, 65535, 1 << 24, 1<<31 - 1}
	p := s.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: windows[random.Intn(len(windows))]})
	defer p.conn.Close()
	var uploads []uint32
	next := uint32(1)
	open := func(path string) {
		p.headers(next, path)
		uploads = append(uploads, next)
		next += 2
	}
	upload := func() (id uint32, ok bool) {
		if len(uploads) == 0 {
			return
		}
		i := random.Intn(len(uploads))
		id = uploads[i]
		uploads = append(uploads[:i:i], uploads[i+1:]...)
		return id, true
	}
	any := func() uint32 { return uint32(random.Intn(int(next)+1))/2*2 + 1 }
	words := []string{"x", "park", "large 100000", "large 70", "fail text", "sleep 1", "shielded 2"}
	p.call(next, "x")
	next += 2
	for range 100 {
		switch random.Intn(20) {
		case 0, 1, 2:
			p.call(next, "%s", words[random.Intn(len(words))])
			next += 2
		case 3:
			open([]string{versionPath, "/x"}[random.Intn(2)])
		case 4:
			events(p, next)
			next += 2
		case 5, 6:
			if id, ok := upload(); ok {
				p.WriteData(id, true, message(words[random.Intn(len(words))]))
			}
		case 7:
			if id, ok := upload(); ok {
				trailers(p, id)
			}
		case 8, 9:
			if id := any(); id < next {
				p.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		case 10, 11:
			if id := any(); id < next {
				p.WriteWindowUpdate(id, uint32(random.Intn(1<<random.Intn(31))+1))
			}
		case 12:
			p.WriteWindowUpdate(0, uint32(random.Intn(1<<random.Intn(20))+1))
		case 13, 14:
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: windows[random.Intn(len(windows))]})
		case 15:
			if id := any(); id < next {
				p.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
			}
		case 16:
			if id := any(); id < next {
				p.WriteData(id, random.Intn(2) == 0, []byte("more"))
			}
		case 17:
			block := p.encode(versionPath)
			at := random.Intn(len(block))
			p.WriteRawFrame(http2.FrameHeaders, 0, next, block[:at])
			p.WriteContinuation(next, true, block[at:])
			uploads = append(uploads, next)
			next += 2
		case 18:
			p.conn.SetReadDeadline(time.Now().Add(time.Duration(random.Intn(3)) * time.Millisecond))
			for range random.Intn(10) {
				if _, err := p.ReadFrame(); err == nil {
					answers++
				}
			}
		case 19:
			if random.Intn(40) == 0 {
				body := make([]byte, random.Intn(40))
				random.Read(body)
				p.WriteRawFrame(http2.FrameType(random.Intn(11)), http2.Flags(random.Intn(256)), uint32(random.Intn(int(next)+4)), body)
			}
		}
	}
	return answers
}
