package process

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// Every connection is closed with the process, also one that comes to light
// after it.
func TestConnsAreClosed(t *testing.T) {
	var list []*grpc.ClientConn
	for range 3 {
		conn, err := grpc.NewClient("passthrough:nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, conn)
	}
	var c conns
	c.add(list[0])
	c.add(list[0])
	c.add(list[1])
	c.close()
	c.add(list[2])
	c.close()
	for i, conn := range list {
		if got := conn.GetState(); got != connectivity.Shutdown {
			t.Errorf("connection %d: %v", i, got)
		}
	}
}
