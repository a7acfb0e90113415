module example.com/repository

go 1.26.0
