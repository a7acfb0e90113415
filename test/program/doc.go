// Package program tests commands together with what other capabilities make of their output.
package program
