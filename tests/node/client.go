// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Client calls a server that may be killed at any time: it waits for the next one to listen.
type Client struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient
	conn    *grpc.ClientConn
}

// Client is made once a server.
func (s *Server) Client(t testing.TB) *Client {
	t.Helper()
	if s.client != nil {
		return s.client
	}
	fast := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 50 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+s.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: fast, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(80<<20)))
	if err != nil {
		t.Fatal(err)
	}
	s.client = &Client{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), conn}
	return s.client
}

func (c *Client) version(t testing.TB) {
	t.Helper()
	if _, _, err := Retry(c.Runtime.Version, &cri.VersionRequest{}); err != nil {
		t.Fatalf("Version: %v", err)
	}
}

// CallLimit is what one call may take, however often it is repeated.
const CallLimit = 60 * time.Second

// Call is one call, not repeated.
func Call[Q, A any](f func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q) (*A, error) {
	return CallWithin(CallLimit, f, request)
}

// CallWithin is Call with a deadline.
func CallWithin[Q, A any](limit time.Duration, f func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f(ctx, request)
}

// Retry repeats a call with the same request as long as the server dies under it, as the kubelet does;
// repeated says whether that was so.
func Retry[Q, A any](f func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q) (answer *A, repeated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	for {
		answer, err = f(ctx, request)
		if status.Code(err) != codes.Unavailable {
			return answer, repeated, err
		}
		repeated = true
		time.Sleep(2 * time.Millisecond)
	}
}
