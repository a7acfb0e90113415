package foreign

// Forms is the table.
const Forms = forms
