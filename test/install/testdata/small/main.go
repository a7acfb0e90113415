// Command small is built in a second for every platform.
package main

func main() { println("small") }
