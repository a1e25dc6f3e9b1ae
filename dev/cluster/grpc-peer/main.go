// grpc-peer is the other end of a socket, by the gRPC that the kubelet is made with:
//
//	grpc-peer call SOCKET METHOD...    call each method, then those of a test service in all ways
//	grpc-peer serve SOCKET METHOD...   answer these methods, and those of a test service
//
// A method is its path; one that begins with "stream:" has a stream of replies. Messages are bytes.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const most = 8 << 20 // bytes of a message

var asStream = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }

// text is a message with a string as its field 2.
func text(s string) []byte {
	head := []byte{0x12}
	for n := len(s); ; n >>= 7 {
		if n < 0x80 {
			head = append(head, byte(n))
			break
		}
		head = append(head, byte(n)|0x80)
	}
	return append(head, s...)
}

type caller struct{ *grpc.ClientConn }

// unary makes a call and wants a status, and the request as the reply of Echo.
func (c caller) unary(ctx context.Context, method string, request []byte, want codes.Code) error {
	var reply []byte
	err := c.Invoke(ctx, method, &request, &reply)
	if status.Code(err) != want {
		return fmt.Errorf("%s: %v, wanted %v", method, err, want)
	}
	if err == nil && strings.HasSuffix(method, "/Echo") && !bytes.Equal(reply, request) {
		return fmt.Errorf("%s: %d bytes came back of %d", method, len(reply), len(request))
	}
	return nil
}

// stream opens a stream and reads replies, at most so many; leaving resets it.
func (c caller) stream(method string, request []byte, atMost int) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.NewStream(ctx, asStream, method)
	if err == nil {
		err = s.SendMsg(&request)
	}
	if err == nil {
		err = s.CloseSend()
	}
	for got := 0; err == nil; got++ {
		if got == atMost {
			return got, nil
		}
		var reply []byte
		if err = s.RecvMsg(&reply); errors.Is(err, io.EOF) {
			return got, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", method, err)
}

func call(socket string, methods []string) error {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(most)))
	if err != nil {
		return err
	}
	defer conn.Close()
	c, ctx := caller{conn}, context.Background()
	for _, method := range methods {
		if path, isStream := strings.CutPrefix(method, "stream:"); isStream {
			if got, err := c.stream(path, nil, 9); err != nil || got != 2 {
				return fmt.Errorf("%s: %d replies, %w", path, got, err)
			}
		} else if err := c.unary(ctx, method, nil, codes.OK); err != nil {
			return err
		}
	}
	if _, err := c.stream("/test.Test/Watch", text("hello"), 1); err != nil {
		return err
	}
	err = errors.Join(
		c.unary(ctx, "/test.Test/None", nil, codes.Unimplemented),
		c.unary(ctx, "/test.Test/Refuse", text("hello"), codes.NotFound),
		c.unary(ctx, "/test.Test/Echo", text(strings.Repeat("x", 4<<20-16)), codes.OK),
	)
	late, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	err = errors.Join(err, c.unary(late, "/test.Test/Hold", text("late"), codes.DeadlineExceeded))
	cancel()
	left, cancel := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, cancel)
	err = errors.Join(err, c.unary(left, "/test.Test/Hold", text("cancelled"), codes.Canceled))
	failed := make(chan error, 1000)
	var all sync.WaitGroup
	for n := range 1000 {
		all.Go(func() { failed <- c.unary(ctx, "/test.Test/Echo", text(fmt.Sprint(n)), codes.OK) })
	}
	all.Wait()
	close(failed)
	for one := range failed {
		err = errors.Join(err, one)
	}
	return err
}

func serve(socket string, methods []string) error {
	replies := map[string]int{"/test.Test/Echo": 1, "/test.Test/Watch": 1}
	for _, method := range methods {
		if path, isStream := strings.CutPrefix(method, "stream:"); isStream {
			replies[path] = 2
		} else {
			replies[method] = 1
		}
	}
	answer := func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		var request []byte
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		switch number, known := replies[method]; {
		case method == "/test.Test/Refuse":
			return status.Error(codes.NotFound, "no hello: ünknown")
		case method == "/test.Test/Hold":
		case !known:
			return status.Error(codes.Unimplemented, "unknown method")
		default:
			for range number {
				if err := s.SendMsg(&request); err != nil {
					return err
				}
			}
			if method != "/test.Test/Watch" {
				return nil
			}
		}
		<-s.Context().Done() // Hold and Watch end with their callers
		fmt.Println("cancelled", method)
		return s.Context().Err()
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(most),
		grpc.UnknownServiceHandler(answer))
	return server.Serve(listener)
}

func main() {
	act := map[string]func(string, []string) error{"call": call, "serve": serve}[os.Args[1]]
	if err := act(os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}
