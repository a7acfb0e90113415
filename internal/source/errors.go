package source

// InvalidError says that the user must change something before the Cluster can be configured. Its text holds no
// secret and is the same on every try.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

// NotFoundError says that a Secret is missing.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }
