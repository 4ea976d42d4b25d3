// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// frames leaves messages as they are.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (frames) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

// pulled answers a pull with what the image's containers are told to have.
func pulled(client *node.Client, stream grpc.ServerStream) error {
	var frame []byte
	if err := stream.RecvMsg(&frame); err != nil {
		return err
	}
	request := &cri.PullImageRequest{}
	if err := proto.Unmarshal(frame, request); err != nil {
		return err
	}
	r, err := node.Call(client.Images.ImageStatus, &cri.ImageStatusRequest{Image: request.Image})
	if err != nil {
		return err
	}
	if r.Image == nil {
		return status.Errorf(codes.NotFound, "%s was not imported", request.Image.Image)
	}
	frame, err = proto.Marshal(&cri.PullImageResponse{ImageRef: append(r.Image.RepoDigests, r.Image.Id)[0]})
	if err != nil {
		return err
	}
	return stream.SendMsg(&frame)
}

// forward has a call answered by the server.
func forward(conn *grpc.ClientConn, method string, stream grpc.ServerStream) error {
	known, _ := metadata.FromIncomingContext(stream.Context())
	to, err := conn.NewStream(metadata.NewOutgoingContext(stream.Context(), known),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(frames{}))
	if err != nil {
		return err
	}
	go func() {
		var frame []byte
		for stream.RecvMsg(&frame) == nil && to.SendMsg(&frame) == nil {
		}
		_ = to.CloseSend()
	}()
	for {
		var frame []byte
		if err := to.RecvMsg(&frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&frame); err != nil {
			return err
		}
	}
}

// startPuller stands before a server and answers its pulls, until the test ends.
func startPuller(t *testing.T, server *node.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+server.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	proxy := grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if method == cri.ImageService_PullImage_FullMethodName {
			return pulled(server.Client(t), stream)
		}
		return forward(conn, method, stream)
	}))
	go func() { _ = proxy.Serve(listener) }()
	t.Cleanup(func() {
		proxy.Stop()
		conn.Close()
	})
	return path
}

// TestImageVolume runs critest's specs of image volumes. They pull their images first; what was imported
// answers that, as long as crispd has no registry client. Everything else is between critest and crispd.
func TestImageVolume(t *testing.T) {
	bin := output(t, "./build")
	images := output(t, "../images/build")
	server := node.Start(t, node.NeedEnv(t, "CRISPD", "crispd, the server"), "--keep")
	server.Import(t, filepath.Join(images, "critest.tar"))
	endpoint := "unix://" + startPuller(t, server)
	out, err := exec.Command(filepath.Join(bin, "critest"), "-runtime-endpoint", endpoint, "-image-endpoint", endpoint,
		"-ginkgo.no-color", "-ginkgo.timeout=5m", "-ginkgo.focus=Image Volume").CombinedOutput()
	// what a spec skips by itself has not passed
	if err != nil || !strings.Contains(string(out), "5 Passed | 0 Failed") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

func output(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command(command).Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, err.(*exec.ExitError).Stderr)
	}
	return strings.TrimSpace(string(out))
}
