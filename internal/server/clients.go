package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// clients are the open connections. For those in the list the server waits until the client sends a request or reads an
// answer, the one that it has waited for longest first.
type clients struct {
	limit   int // of open
	mutex   sync.Mutex
	open    int
	held    int // bytes, of all
	waiting list.List
	queued  map[*client]struct{} // whose requests are read and not answered yet
}

// client is one connection.
type client struct {
	net.Conn

	clients *clients
	place   *list.Element // in waiting, nil if it is not there
	held    int           // bytes
	gone    bool
}

// errGivenUp reports that the server has no room for bytes of a client.
var errGivenUp = errors.New("too many requests at once; try again")

// listener hands out clients.
type listener struct {
	net.Listener

	clients *clients
}

func (c *clients) listen(l net.Listener) net.Listener { return listener{l, c} }

// Limit returns a listener on which so many connections are open. Beyond it, the oldest is closed.
func Limit(l net.Listener, connections int) net.Listener {
	return (&clients{limit: connections}).listen(l)
}

// Accept implements net.Listener. If there are too many clients, the one that the server has waited for longest is
// closed.
func (l listener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &client{Conn: connection, clients: l.clients}
	l.clients.mutex.Lock()
	defer l.clients.mutex.Unlock()
	l.clients.open++
	c.wait()
	if l.clients.open > l.clients.limit {
		l.clients.oldest(func(*client) bool { return true }).end()
	}
	return c, nil
}

// oldest returns the client that the server has waited for longest, or nil. The mutex is held.
func (c *clients) oldest(so func(*client) bool) *client {
	for place := c.waiting.Front(); place != nil; place = place.Next() {
		if found, _ := place.Value.(*client); so(found) {
			return found
		}
	}
	return nil
}

// wait appends c to the list. The mutex is held.
func (c *client) wait() {
	if c.gone {
		return
	}
	if c.place == nil {
		c.place = c.clients.waiting.PushBack(c)
	} else {
		c.clients.waiting.MoveToBack(c.place)
	}
}

// leave removes c from the list. The mutex is held.
func (c *client) leave() {
	if c.place != nil {
		c.clients.waiting.Remove(c.place)
		c.place = nil
	}
}

// end closes c and stops counting it. The mutex is held.
func (c *client) end() {
	if c == nil || c.gone {
		return
	}
	c.gone = true
	c.leave()
	delete(c.clients.queued, c)
	c.clients.open--
	c.clients.held -= c.held
	c.held = 0
	_ = c.Conn.Close()
}

// Close implements net.Conn.
func (c *client) Close() error {
	c.clients.mutex.Lock()
	defer c.clients.mutex.Unlock()
	if c.gone {
		return net.ErrClosed
	}
	c.end()
	return nil
}

// awaits notes that from now on the server waits for c to send or to read something.
func (c *client) awaits() {
	c.clients.mutex.Lock()
	defer c.clients.mutex.Unlock()
	c.wait()
}

// queues notes that the request of c is read.
func (c *client) queues() {
	c.clients.mutex.Lock()
	defer c.clients.mutex.Unlock()
	c.leave()
	if c.clients.queued == nil {
		c.clients.queued = map[*client]struct{}{}
	}
	if !c.gone {
		c.clients.queued[c] = struct{}{}
	}
}

// works notes that the request of c is being answered. Its bytes are then counted elsewhere.
func (c *client) works() {
	c.clients.mutex.Lock()
	defer c.clients.mutex.Unlock()
	delete(c.clients.queued, c)
	c.clients.held -= c.held
	c.held = 0
}

// hold counts the bytes in memory because of c. If all clients together hold too many, others that hold some are
// closed: those that the server waits for, longest first, then those that hold more.
func (c *client) hold(bytes int) error {
	c.clients.mutex.Lock()
	defer c.clients.mutex.Unlock()
	for !c.gone && c.clients.held+bytes-c.held > maxWaiting {
		other := c.clients.oldest(func(other *client) bool { return other.held > 0 })
		if other == nil {
			other = c.clients.largest()
			if other == nil || other.held <= bytes {
				return errGivenUp
			}
		}
		other.end()
	}
	if c.gone {
		return errGivenUp
	}
	c.clients.held += bytes - c.held
	c.held = bytes
	return nil
}

// largest returns the client that holds most bytes of those whose requests are read and not answered yet, or nil. The
// mutex is held.
func (c *clients) largest() *client {
	var found *client
	for queued := range c.queued {
		if found == nil || queued.held > found.held {
			found = queued
		}
	}
	return found
}

// clientKey is the key of a client in a context.
type clientKey struct{}

// withClient puts the client of a connection into its context.
func withClient(ctx context.Context, connection net.Conn) context.Context {
	if secure, is := connection.(*tls.Conn); is {
		connection = secure.NetConn()
	}
	return context.WithValue(ctx, clientKey{}, connection)
}
