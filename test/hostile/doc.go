// Package hostile attacks the servers of this product the way a Pod could that has no certificate and wants them gone,
// and looks whether the next honest request is answered.
package hostile
